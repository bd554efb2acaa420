/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engines/place.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

const struct variant place_variant = {.name = "file", .type = "file", .base = "/var/tmp"};

struct place place_of(void **state)
{
	struct place p = {.fx = *state};

	snprintf(p.ns, sizeof(p.ns), "%s/t/a", p.fx->root);
	snprintf(p.outside, sizeof(p.outside), "%s/outside", p.fx->root);
	assert_int_equal(mkdir(p.outside, 0700), 0);
	place_put(p.outside, "secret", "OUTSIDE");
	return p;
}

void place_put(const char *dir, const char *name, const char *text)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

const char *place_in(const struct place *p, const char *name)
{
	static char path[600];

	snprintf(path, sizeof(path), "%s/%s", p->ns, name);
	return path;
}

void place_secret_untouched(const struct place *p)
{
	char path[600], text[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/secret", p->outside);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "OUTSIDE");
}

/* What is opened from here on sees the mount. */
static void open_anew(struct place *p)
{
	struct engine_config c = {.name = "e", .root = p->fx->root};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns = NULL;
	struct engine *e = NULL;

	assert_int_equal(p->fx->ops->create(&c, &e, &err), 0);
	assert_int_equal(p->fx->ops->ns_open(e, &fixture_who, "t/a", &ns, &err), 0);
	p->fx->ops->ns_close(p->fx->ns);
	p->fx->ops->destroy(p->fx->e);
	p->fx->e = e;
	p->fx->ns = ns;
}

/* In a namespace of our own, so that nothing stays mounted. */
static void bind(struct place *p, const char *from, const char *name)
{
	char why[200];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(from, place_in(p, name), NULL, MS_BIND, NULL) < 0) {
		snprintf(why, sizeof(why), "no mount namespace of our own here: %s",
		         strerror(errno));
		remove(place_in(p, name));
		fx_skip(why);
	}
	open_anew(p);
}

bool place_mount_again(struct place *p, const char *name)
{
	return mount(p->outside, place_in(p, name), NULL, MS_BIND, NULL) == 0 &&
	       umount2(place_in(p, name), MNT_DETACH) == 0;
}

void place_mount(struct place *p)
{
	assert_int_equal(mkdir(place_in(p, "m"), 0700), 0);
	bind(p, p->outside, "m");
}

void place_mount_file(struct place *p, const char *name)
{
	char secret[600];

	snprintf(secret, sizeof(secret), "%s/secret", p->outside);
	bind(p, secret, name);
}

void place_unmount(struct place *p)
{
	assert_int_equal(umount(place_in(p, "m")), 0);
}
