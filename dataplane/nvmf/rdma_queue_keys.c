// SPDX-License-Identifier: Apache-2.0
/*
 * Which window a command's key is. Its own: over exactly its bytes, for exactly its direction, from
 * its BIND to the receipt of its LOCAL_INV. Or a standing one, of its region and direction, that
 * later commands use again. Must never give out a key whose end has begun, nor one for the other
 * direction.
 */
#include "dataplane/nvmf/rdma_queue_priv.h"
#include <assert.h>
#include <errno.h>

/* A command that sends data lets the target read, and the other way round. */
static uint8_t access_of(enum nvmf_dir dir)
{
	return dir == NVMF_TO_TARGET ? FABRIC_READ : FABRIC_WRITE;
}

static int bind_over(struct rdma_queue *q, struct fabric_region *r, uint64_t offset, uint64_t len,
                     uint8_t access, uint32_t flags, uint32_t which, struct fabric_window **ret,
                     uint32_t *ret_key)
{
	struct fabric_bind b = {.cookie = rdma_cookie(RDMA_BIND, which),
	                        .region = r,
	                        .offset = offset,
	                        .length = len,
	                        .access = access,
	                        .flags = FABRIC_QUIET | flags};
	int rc = fabric_window_bind(q->qp, &b, ret, ret_key);

	if (rc == 0)
		q->c.keys_bound++;
	return rc == 0 || rc == -ENOTCONN ? rc : rc == -EBUSY ? -EAGAIN : -EINVAL;
}

/* ---- of one command ---- */

/* @r NULL: there was nothing left to end. */
static void note_dead(struct rdma_queue *q, bool withdrawn, const struct fabric_receipt *r)
{
	q->n_receipts--;
	q->c.keys_revoked++;
	if (withdrawn && r)
		q->c.last_withdrawn_ns = MAX(q->c.last_withdrawn_ns, r->invalidated_ns);
}

static void own_dead(void *arg, const struct fabric_receipt *r)
{
	struct rdma_cmd *cmd = arg;

	note_dead(cmd->q, cmd->withdrawn, r);
	cmd->window = NULL;
	cmd->ending = cmd->withdrawn = false;
	rdma_settle(cmd);
}

static int own_key(struct rdma_cmd *cmd, struct fabric_region *r, uint64_t offset, uint32_t len,
                   uint64_t *ret_addr, uint32_t *ret_key)
{
	struct rdma_queue *q = cmd->q;
	/* The command's deadline is the bind's, too: it would have no answer. Its end is known with
	 * that of its LOCAL_INV, so nothing wakes us for it; a key that the target ends has none.
	 */
	uint32_t flags = q->remote_invalidate ? 0 : FABRIC_UNTIMED;
	int rc = bind_over(q, r, offset, len, access_of(cmd->req->dir), flags, cmd->index,
	                   &cmd->window, ret_key);

	if (rc == 0) {
		*ret_addr = fabric_window_base(cmd->window);
		cmd->key = *ret_key;
		cmd->bound_ns = q->now_ns;
		q->issued[access_of(cmd->req->dir) - 1] += cmd->own == NULL;
	}
	return rc;
}

static void own_end(struct rdma_cmd *cmd)
{
	struct rdma_queue *q = cmd->q;

	if (cmd->ending)
		return;
	cmd->ending = true;
	cmd->ended_ns = q->now_ns;
	q->n_receipts++;
	q->ends_queued = true;
	/* The receipt may run inside. */
	if (fabric_window_revoke(cmd->window, q->now_ns, own_dead, cmd) < 0)
		own_dead(cmd, NULL);
}

/* ---- standing ---- */

static struct list *bucket_of(struct rdma_queue *q, const struct fabric_region *r)
{
	uint64_t h = (uint64_t)(uintptr_t)r * 0x9e3779b97f4a7c15ull;

	return &q->buckets[h >> 58 & (RDMA_BUCKETS - 1)];
}

static void standing_dead(void *arg, const struct fabric_receipt *r)
{
	struct rdma_key *k = arg;

	note_dead(k->q, k->withdrawn, r);
	k->window = NULL;
	k->ending = k->doomed = k->withdrawn = false;
	k->q->keys_live--;
	list_del(&k->lru);
	/* Commands that it ended under keep its place until they are over. */
	if (!k->users)
		list_add_tail(&k->q->key_free, &k->lru);
	/* Commands of a queue that has failed wait for all of them. */
	for (uint32_t i = 0; k->q->keys_live == 0 && i < k->q->depth; i++)
		rdma_settle(&k->q->cmds[i]);
}

static void standing_end(struct rdma_key *k)
{
	struct rdma_queue *q = k->q;

	if (!k->window || k->ending)
		return;
	k->ending = true;
	k->ended_ns = q->now_ns;
	list_del(&k->bucket);
	list_del(&k->lru);
	q->n_receipts++;
	q->ends_queued = true;
	if (fabric_window_revoke(k->window, q->now_ns, standing_dead, k) < 0)
		standing_dead(k, NULL);
}

static struct rdma_key *standing_find(struct rdma_queue *q, const struct fabric_region *r,
                                      uint8_t access)
{
	struct list *bucket = bucket_of(q, r);
	struct rdma_key *k;

	list_for_each (bucket, k, bucket)
		if (k->region == r && k->access == access)
			return k;
	return NULL;
}

/* A free place. When few are left the key that nobody has used for longest begins to end, so that
 * the next one need not wait for it. */
static struct rdma_key *standing_place(struct rdma_queue *q)
{
	if (q->keys_live >= q->n_keys - RDMA_SPARE && !list_empty(&q->key_lru))
		standing_end(list_first(&q->key_lru, struct rdma_key, lru));
	return list_empty(&q->key_free) ? NULL : list_first(&q->key_free, struct rdma_key, lru);
}

static int standing_new(struct rdma_queue *q, struct fabric_region *r, uint8_t access,
                        struct rdma_key **ret)
{
	struct rdma_key *k = standing_place(q);
	int rc;

	if (!k)
		return -EAGAIN;
	rc = bind_over(q, r, 0, fabric_region_length(r), access, 0, (uint32_t)(k - q->keys),
	               &k->window, &k->key);
	if (rc < 0)
		return rc;
	q->keys_live++;
	k->id = q->ids ? ++*q->ids : 0;
	k->bound_ns = q->now_ns;
	k->region = r;
	k->access = access;
	k->base = fabric_window_base(k->window);
	list_del(&k->lru);
	list_add_tail(bucket_of(q, r), &k->bucket);
	*ret = k;
	return 0;
}

static int standing_key(struct rdma_cmd *cmd, struct fabric_region *r, uint64_t offset,
                        uint64_t *ret_addr, uint32_t *ret_key)
{
	struct rdma_queue *q = cmd->q;
	uint8_t access = access_of(cmd->req->dir);
	struct rdma_key *k = standing_find(q, r, access);
	int rc = k ? 0 : standing_new(q, r, access, &k);

	if (rc < 0)
		return rc;
	list_del(&k->lru);
	k->users++;
	cmd->standing = k;
	*ret_addr = k->base + offset;
	*ret_key = k->key;
	return 0;
}

/* ---- both ---- */

int rdma_key_for(struct rdma_cmd *cmd, struct fabric_region *r, uint64_t offset, uint32_t len,
                 bool own, uint64_t *ret_addr, uint32_t *ret_key)
{
	return own || cmd->q->per_command ? own_key(cmd, r, offset, len, ret_addr, ret_key)
	                                  : standing_key(cmd, r, offset, ret_addr, ret_key);
}

void rdma_key_drop(struct rdma_cmd *cmd)
{
	struct rdma_key *k = TAKE_PTR(cmd->standing);

	if (cmd->window)
		own_end(cmd);
	if (!k || --k->users || k->ending)
		return;
	if (!k->window)
		list_add_tail(&cmd->q->key_free, &k->lru);
	else if (k->doomed)
		standing_end(k);
	else
		list_add_tail(&cmd->q->key_lru, &k->lru);
}

void rdma_keys_end(struct rdma_queue *q)
{
	for (uint32_t i = 0; i < q->depth; i++)
		if (q->cmds[i].window)
			own_end(&q->cmds[i]);
	for (uint32_t i = 0; i < q->n_keys; i++)
		standing_end(&q->keys[i]);
}

uint32_t rdma_keys_forget(struct rdma_queue *q)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < q->n_keys; i++) {
		struct rdma_key *k = &q->keys[i];

		if (!k->window || k->ending)
			continue;
		/* Found by no other command, and ended with the last that has it. */
		list_del(&k->bucket);
		k->doomed = true;
		if (k->users)
			continue;
		k->withdrawn = true;
		standing_end(k);
		n++;
	}
	return n;
}

uint32_t rdma_key_withdraw(struct rdma_cmd *cmd)
{
	struct rdma_key *k = cmd->standing;

	if (cmd->window && !cmd->ending) {
		cmd->withdrawn = cmd->cut = true;
		own_end(cmd);
		return 1;
	}
	if (!k || !k->window || k->ending)
		return 0;
	k->withdrawn = cmd->cut = true;
	standing_end(k);
	return 1;
}

uint32_t rdma_keys_ending(const struct rdma_queue *q, uint64_t until_ns)
{
	uint32_t n = 0;

	if (!q->n_receipts)
		return 0;
	for (uint32_t i = 0; i < q->depth; i++)
		n += q->cmds[i].ending && q->cmds[i].ended_ns <= until_ns;
	for (uint32_t i = 0; i < q->n_keys; i++)
		n += q->keys[i].ending && q->keys[i].ended_ns <= until_ns;
	return n;
}

/* ---- for whoever asks ---- */

static void add(struct key_info *to, uint64_t bytes, uint64_t since_ns)
{
	to->count++;
	to->bytes += bytes;
	to->since_ns = to->since_ns ? MIN(to->since_ns, since_ns) : since_ns;
}

static void tell_standing(const struct rdma_key *k, key_info_fn fn, void *arg)
{
	struct key_info one = {.id = k->id, .access = k->access, .ending = k->ending};

	add(&one, fabric_region_length(k->region), k->bound_ns);
	fn(arg, &one);
}

/* Of a queue with standing keys commands have some, too: over memory that a tenant writes to
 * meanwhile. Folded they are counted with the others. */
void rdma_keys_tell(const struct rdma_queue *q, bool folded, key_info_fn fn, void *arg)
{
	struct key_info rows[2] = {{.access = FABRIC_READ}, {.access = FABRIC_WRITE}};

	for (uint32_t i = 0; i < q->depth; i++) {
		const struct rdma_cmd *cmd = &q->cmds[i];

		/* What lies in the queue's own memory is no slot. */
		if (cmd->window && cmd->req && !cmd->own)
			add(&rows[access_of(cmd->req->dir) - 1], cmd->req->len, cmd->bound_ns);
	}
	for (uint32_t i = 0; i < q->n_keys; i++) {
		const struct rdma_key *k = &q->keys[i];

		if (k->window && folded)
			add(&rows[k->access - 1], fabric_region_length(k->region), k->bound_ns);
		else if (k->window)
			tell_standing(k, fn, arg);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rows[i].id = q->row_ids[i];
		rows[i].per_command = q->per_command || !folded;
		rows[i].issued = q->issued[i];
		if (rows[i].count || q->issued[i])
			fn(arg, &rows[i]);
	}
}
