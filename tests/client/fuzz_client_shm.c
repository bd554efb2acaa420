/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile agent can send before it shares memory, and write into the memory when it does,
 * against a session with reads and writes of shared memory and of the program's own, a flush and a
 * zero in flight. The first byte of an input says which descriptors come with MEMORY (enum parcel);
 * the second: bit 0: the header of MEMORY is the input's, sealed when bit 1 is set; bit 2: the
 * counts of the rings begin shortly before they wrap. Then steps: a byte says which (enum step),
 * what it needs follows. All on one thread, so an input does the same each time.
 *
 * Whatever is written, of the program's own memory only the buffers of reads change; what is to be
 * written is not changed; each request ends exactly once, with no more bytes than it asked for; and
 * nothing is left with the agent, or of the stage.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm_priv.h"
#include "tests/fuzz/fuzz.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define INPUT_MAX 16384u
#define STEPS_MAX 256u
#define DEPTH     16u
#define SHARED    65536u /* of the arena: a region of the program's */
#define PIECE     5000u
#define OWN       (4u * 8192)
#define GUARD     0x5a
#define ARENA     (WIRE_SHM_DATA_OFF + WIRE_SHM_DATA_MIN)
#define WRAPS_AT  (UINT32_MAX - 3)

/* ---- the connection: a pair of sockets, and all that the agent says first is in it already ----
 */

static int ours; /* of the pair: what connect leads to */

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len)
{
	must(dup2(ours, fd) == fd);
	return 0;
}

/* The tenant's nonce is all zeroes here, so that the target knows the right proof. */
void __wrap_crypto_random(void *p, size_t n);
void __wrap_crypto_random(void *p, size_t n)
{
	memset(p, 0, n);
}

/* ---- the input ---- */

struct input {
	const uint8_t *at;
	size_t left;
};

/* What is not there is zero. */
static void take_bytes(struct input *in, void *to, size_t n)
{
	size_t have = MIN(n, in->left);

	memset(to, 0, n);
	memcpy(to, in->at, have);
	in->at += have;
	in->left -= have;
}

static uint32_t take_number(struct input *in, size_t bytes)
{
	uint32_t n = 0;

	take_bytes(in, &n, bytes);
	return n;
}

/* ---- the agent ---- */

struct agent {
	int fd, memfd;
	uint8_t *map;
	uint32_t written, ended_at;
};

enum parcel {
	GOOD,
	UNSEALED,
	OTHER_LENGTH,
	NO_DESCRIPTOR,
	TWO_DESCRIPTORS,
	NO_MEMFD,
	IN_TWO_PARTS,
	PARCELS
};

static int make_memfd(enum parcel how)
{
	int fd;

	if (how == NO_MEMFD)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(fd >= 0 && ftruncate(fd, how == OTHER_LENGTH ? ARENA - 4096 : ARENA) == 0);
	must(how == UNSEALED || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	return fd;
}

static void send_part(const struct agent *a, const void *p, size_t n, unsigned n_fds)
{
	union {
		struct cmsghdr head;
		char buf[CMSG_SPACE(2 * sizeof(int))];
	} control = {{0}};
	struct iovec iov = {(void *)p, n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds) {
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.head =
			(struct cmsghdr){CMSG_LEN(n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		for (unsigned i = 0; i < n_fds; i++)
			memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &a->memfd, sizeof(int));
	}
	must(sendmsg(a->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n);
}

static void send_memory(const struct agent *a, enum parcel how, uint8_t flags, struct input *in)
{
	unsigned n_fds = how == NO_DESCRIPTOR ? 0 : how == TWO_DESCRIPTORS ? 2 : 1;
	struct wire_header h = {.opcode = WIRE_MEMORY, .offset = ARENA};

	if (flags & 1)
		take_bytes(in, &h, sizeof(h));
	if (!(flags & 1) || flags & 2)
		codec_seal(&h);
	if (how != IN_TWO_PARTS) {
		send_part(a, &h, sizeof(h), n_fds);
		return;
	}
	send_part(a, &h, 1, 0);
	send_part(a, (const uint8_t *)&h + 1, sizeof(h) - 1, 1);
}

static void greet(const struct agent *a, const struct control_session *g)
{
	struct {
		struct wire_header h;
		uint8_t nonce[WIRE_NONCE_LEN];
	} challenge = {.h = {.opcode = WIRE_CHALLENGE, .payload_len = WIRE_NONCE_LEN}};
	struct {
		struct wire_header h;
		struct wire_welcome w;
	} welcome = {
		.h = {.opcode = WIRE_WELCOME, .payload_len = sizeof(struct wire_welcome)},
		.w = {.credits = DEPTH, .max_io = WIRE_IO_MAX, .features = WIRE_FEATURES_KNOWN}};
	static const uint8_t zeroes[WIRE_NONCE_LEN];
	const struct codec_proof p = {g->secret, g->uid, challenge.nonce, zeroes};

	codec_prove(&p, WIRE_LABEL_AGENT, welcome.w.proof);
	codec_seal(&challenge.h);
	codec_seal(&welcome.h);
	send_part(a, &challenge, sizeof(challenge), 0);
	send_part(a, &welcome, sizeof(welcome), 0);
}

/* ---- the program ---- */

static _Alignas(4096) uint8_t own[OWN]; /* by quarters: a read, nothing, a write, nothing */
static struct ros2_mount mount;
static struct ros2_file file;
static uint32_t begun;

static void new_keys(struct ros2_session *s)
{
	for (uint32_t i = 0; i < s->n_regions; i++) {
		s->regions[i]->stale = false;
		s->regions[i]->key = 70 + i;
		s->regions[i]->generation++;
		s->regions[i]->deadline_ns = UINT64_MAX;
	}
}

static void begin(struct ros2_session *s, enum request_kind kind, struct ros2_region *region,
                  uint8_t *buf, uint32_t len)
{
	struct request *r = request_get(s, false);

	if (!r)
		return;
	r->kind = kind;
	r->file = &file;
	r->region = region;
	r->buf = buf;
	r->len = len;
	request_prepare(s, r);
	request_set_ready(s, r, 1);
	begun++;
}

static struct ros2_region *share_region(struct ros2_session *s)
{
	struct ros2_region *r = calloc(1, sizeof(*r));

	must(r != NULL);
	*r = (struct ros2_region){.session = s, .access = 3};
	must(shm_region_place(s, r, SHARED, 4096));
	must(region_insert(s, r, NULL) == 0);
	return r;
}

static void begin_all(struct ros2_session *s)
{
	struct ros2_region *r = share_region(s);

	begin(s, REQ_READ, r, r->addr + 100, PIECE);
	begin(s, REQ_WRITE, r, r->addr + 2 * PIECE, PIECE);
	begin(s, REQ_READ, NULL, own, PIECE);
	begin(s, REQ_WRITE, NULL, own + OWN / 2, PIECE);
	begin(s, REQ_FLUSH, NULL, NULL, 0);
	begin(s, REQ_ZERO, NULL, NULL, PIECE);
	new_keys(s);
	requests_dispatch(s);
}

static struct ros2_session *make_session(struct ros2_client *c)
{
	struct ros2_session_opts o = {.depth = DEPTH, .transport = ROS2_TRANSPORT_SHM};
	struct ros2_session *s = session_make(c, &o);

	must(s != NULL);
	strcpy(s->granted.data_address, "unix:/somewhere");
	s->granted.transport = ROS2_TRANSPORT_SHM;
	s->granted.secret[0] = 1;
	memset(own, GUARD, sizeof(own));
	file = (struct ros2_file){.mount = &mount, .handle = 1, .flags = ROS2_O_RDWR};
	begun = 0;
	return s;
}

static void begin_counts_at(struct agent *a, struct ros2_session *s, uint32_t n)
{
	struct wire_shm_control *c = (struct wire_shm_control *)(void *)a->map;

	s->shm->written = s->shm->taken = a->written = n;
	c->to_agent.written = c->to_agent.taken = n;
	c->to_tenant.written = c->to_tenant.taken = n;
}

/* ---- steps ---- */

enum step {
	PUT,      /* a header, sealed; a request id below the depth stands for that request's */
	PUT_RAW,  /* 64 bytes */
	TELL,     /* as an agent does that means well */
	WRITTEN,  /* another count than there is: so many more (4 bytes) */
	TAKEN,    /* of the ring to the agent: so many more than were written (4 bytes) */
	SLEEPS,   /* of which ring, what: a byte each */
	PROGRAMS, /* a count that is the program's: which (a byte), what (4 bytes) */
	POKE,     /* where (3 bytes), how many, bytes: anywhere */
	SEND,     /* how many, bytes: on the socket */
	HANG_UP,
	PROGRESS,
	LISTEN,
	POLL,
	BEGIN, /* another request: which (a byte) */
	STEPS
};

static struct wire_shm_control *control_of(const struct agent *a)
{
	return (struct wire_shm_control *)(void *)a->map;
}

static void put(struct agent *a, const void *entry)
{
	memcpy(a->map + WIRE_SHM_TO_TENANT_OFF +
	               (size_t)(a->written++ % WIRE_SHM_RING_ENTRIES) * WIRE_HEADER_LEN,
	       entry, WIRE_HEADER_LEN);
}

static void put_sealed(struct agent *a, struct ros2_session *s, struct input *in)
{
	struct wire_header h;

	take_bytes(in, &h, sizeof(h));
	if (h.request_id < DEPTH)
		h.request_id = s->requests[h.request_id].id;
	codec_seal(&h);
	put(a, &h);
}

static void poke(struct agent *a, struct input *in)
{
	uint32_t at = take_number(in, 3) % (ARENA - 256), n = take_number(in, 1);

	take_bytes(in, a->map + at, n);
}

static void send_bytes(const struct agent *a, struct input *in)
{
	uint8_t bytes[256];
	uint32_t n = take_number(in, 1);

	take_bytes(in, bytes, n);
	if (a->fd >= 0)
		(void)send(a->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void begin_another(struct ros2_session *s, uint8_t which)
{
	uint8_t *shared_at = s->regions[s->n_regions - 1]->addr;

	if (s->peer_said_bye)
		return;
	if (which & 1)
		begin(s, which & 2 ? REQ_READ : REQ_WRITE, NULL, own + (which & 2 ? 0 : OWN / 2),
		      PIECE);
	else
		begin(s, which & 2 ? REQ_READ : REQ_WRITE, s->regions[s->n_regions - 1], shared_at,
		      PIECE);
	new_keys(s);
	requests_dispatch(s);
}

/* What a reader or writer of the rings stores. */
static void store(struct agent *a, enum step step, struct input *in)
{
	struct wire_shm_control *c = control_of(a);
	uint32_t which = step == SLEEPS || step == PROGRAMS ? take_number(in, 1) & 1 : 0;

	if (step == WRITTEN)
		c->to_tenant.written = a->written + take_number(in, 4);
	else if (step == TAKEN)
		c->to_agent.taken = c->to_agent.written + take_number(in, 4);
	else if (step == SLEEPS)
		*(which ? &c->to_agent.sleeps : &c->to_tenant.sleeps) = take_number(in, 1);
	else
		*(which ? &c->to_agent.written : &c->to_tenant.taken) = take_number(in, 4);
}

/* Not 0: the connection is of no use any more. */
static int do_step(struct agent *a, struct ros2_session *s, enum step step, struct input *in)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t entry[WIRE_HEADER_LEN];
	bool moved = false;
	int rc = 0;

	if (step == PUT) {
		put_sealed(a, s, in);
	} else if (step == PUT_RAW) {
		take_bytes(in, entry, sizeof(entry));
		put(a, entry);
	} else if (step == TELL) {
		control_of(a)->to_tenant.written = a->written;
	} else if (step == POKE) {
		poke(a, in);
	} else if (step == SEND) {
		send_bytes(a, in);
	} else if (step == HANG_UP) {
		util_close_cleanup(&a->fd);
		a->fd = -1;
	} else if (step == PROGRESS) {
		rc = link_progress(s, &moved, &err);
	} else if (step == LISTEN) {
		rc = link_listen(s, &err);
	} else if (step == POLL) {
		rc = link_await(s, 0, &moved, &err);
	} else if (step == BEGIN) {
		begin_another(s, (uint8_t)take_number(in, 1));
	} else {
		store(a, step, in);
	}
	if (rc)
		must_refuse(rc, &err);
	return rc;
}

/* ---- what must hold ---- */

static bool untouched(const uint8_t *p, size_t n)
{
	return *p == GUARD && !memcmp(p, p + 1, n - 1);
}

static void check_done(struct ros2_session *s)
{
	uint32_t done = 0;

	while (!list_empty(&s->done)) {
		struct request *r = list_first(&s->done, struct request, link);

		must(r->result <= (int64_t)r->len && (unsigned)r->status < ROS2_STATUS_COUNT);
		must(r->status == ROS2_OK || r->result < 0);
		must(memchr(r->words, '\0', sizeof(r->words)) != NULL);
		request_put(s, r);
		done++;
	}
	must(done == begun && !s->n_user && !s->n_sent && !s->n_reads_sent && !file.users);
}

static void check(struct ros2_session *s)
{
	struct ros2_err why = {-ESHUTDOWN, ROS2_CLOSED, "the end"};

	must(untouched(own + PIECE, OWN - PIECE));
	link_cut(s);
	s->state = LINK_DOWN;
	requests_link_lost(s);
	requests_fail(s, &why);
	must(untouched(own + PIECE, OWN - PIECE));
	check_done(s);
	for (uint32_t i = 0; i < s->n_regions; i++)
		must(!s->regions[i]->users && !s->regions[i]->n_sent);
	for (size_t i = 0; i < ARRAY_SIZE(s->shm->pages_in_use); i++)
		must(!s->shm->pages_in_use[i]);
}

static void use(struct agent *a, struct ros2_session *s, uint8_t flags, struct input *in)
{
	a->map = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, a->memfd, 0);
	must(a->map != MAP_FAILED);
	s->state = LINK_UP;
	must(requests_init(s) == 0);
	if (flags & 4)
		begin_counts_at(a, s, WRAPS_AT);
	begin_all(s);
	for (uint32_t n = 0; in->left && n < STEPS_MAX; n++)
		if (do_step(a, s, take_number(in, 1) % STEPS, in))
			break;
	check(s);
	munmap(a->map, ARENA);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_client c = {0};
	struct ros2_session *s;
	struct agent a;
	enum parcel how;
	uint8_t flags;
	int fd[2], rc;

	if (size < 2 || size > INPUT_MAX)
		return 0;
	how = take_number(&in, 1) % PARCELS;
	flags = (uint8_t)take_number(&in, 1);
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
	ours = fd[0];
	a = (struct agent){.fd = fd[1], .memfd = make_memfd(how)};
	s = make_session(&c);
	greet(&a, &s->granted);
	send_memory(&a, how, flags, &in);
	if (flags & 1)
		shutdown(a.fd, SHUT_WR); /* what is missing does not come */
	rc = link_open(s, 60000, &err);
	must(rc == 0 || flags & 1 || (how != GOOD && how != IN_TWO_PARTS));
	/* What is not as long as it is said to be, or may become shorter, is not used. */
	must(rc != 0 || how == GOOD || how == IN_TWO_PARTS);
	if (rc)
		must_refuse(rc, &err);
	else
		use(&a, s, flags, &in);
	session_unmake(s);
	close(fd[0]);
	close(a.memfd);
	if (a.fd >= 0)
		close(a.fd);
	return 0;
}
