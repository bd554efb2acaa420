/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tests of the file engine's paths attack it: the directory of its namespace t/a, and one
 * beside it with a secret. The attacker is whoever can put things there behind the engine's back.
 */
#ifndef ROS2_TESTS_ENGINES_PLACE_H
#define ROS2_TESTS_ENGINES_PLACE_H

#include "tests/engines/fixture.h"

struct place {
	struct fixture *fx;
	char ns[300];      /* the namespace's directory */
	char outside[300]; /* a directory next to it, with the file "secret" */
};

extern const struct variant place_variant;

struct place place_of(void **state);
/* A file with this text. */
void place_put(const char *dir, const char *name, const char *text);
/* The path of @name in the namespace's directory: until the next call. */
const char *place_in(const struct place *p, const char *name);
void place_secret_untouched(const struct place *p);
/* Mounts the outside at "m" of the namespace, in a mount namespace of this process, and opens the
 * engine anew: descriptors opened before still see the old mounts. Without the right to, the test
 * ends as skipped and says why. */
void place_mount(struct place *p);
/* What is outside is mounted at @name of the namespace, and gone again: once there are mounts of
 * our own. */
bool place_mount_again(struct place *p, const char *name);
/* The same of the secret, at the file @name. */
void place_mount_file(struct place *p, const char *name);
void place_unmount(struct place *p);

#endif
