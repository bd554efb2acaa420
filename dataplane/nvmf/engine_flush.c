/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a flush may say of a target with a volatile cache (docs/nvmf.md, "When a target goes"). What
 * was lost with a cache is told once, as fsync tells once that a page was lost; but each flush
 * speaks for all that was written before it was asked for, and of several at once only one takes
 * that from the file. So the others go by what those under way have taken, and who was asked for
 * before another was told is told, too: no flush that is under way says OK for what is gone.
 */
#include "common/clock.h"
#include "dataplane/nvmf/engine_priv.h"

/* 0 = no write. */
static uint32_t older(uint32_t a, uint32_t b)
{
	return a && b ? MIN(a, b) : MAX(a, b);
}

static void note_cached(struct engine_file *f, uint32_t generation)
{
	uint32_t was = atomic_load(&f->cached);

	while ((!was || generation < was) &&
	       !atomic_compare_exchange_weak(&f->cached, &was, generation))
		;
}

/* Not by what the others go by: else there would be no end to it while flushes overlap. */
void nvmf_flush_begins(struct nvmf_nio *nio)
{
	struct engine_file *f = nio->io->file;
	const struct nvmf_nio *other;

	nio->asked_ns = nio->io->asked_ns ? nio->io->asked_ns : clock_boottime_ns();
	pthread_mutex_lock(&f->flushes_lock);
	nio->cached = nio->took = atomic_exchange(&f->cached, 0);
	list_for_each (&f->flushes, other, link_flush)
		nio->cached = older(nio->cached, other->took);
	list_add_tail(&f->flushes, &nio->link_flush);
	pthread_mutex_unlock(&f->flushes_lock);
}

bool nvmf_flush_needed(struct engine_file *f)
{
	uint64_t size;
	bool others;

	if (nvmf_ctrl_write_cache(f->ctrl) || atomic_load(&f->cached))
		return true;
	/* What was written is not there: in a namespace that is gone, or is another one. */
	if (nvmf_file_size(f, &size, NULL) < 0)
		return true;
	pthread_mutex_lock(&f->flushes_lock);
	others = !list_empty(&f->flushes);
	pthread_mutex_unlock(&f->flushes_lock);
	return others;
}

static bool lost(uint32_t cached, uint32_t flushed)
{
	return cached && cached < flushed;
}

static int64_t judge_flush(struct nvmf_nio *nio, int64_t res)
{
	struct engine_file *f = nio->io->file;

	pthread_mutex_lock(&f->flushes_lock);
	list_del(&nio->link_flush);
	if (res < 0 && nio->cached)
		note_cached(f, nio->cached); /* for the next one to say */
	else if (res == 0 && (lost(nio->cached, nio->flushed) || nio->asked_ns < f->told_ns))
		res = -EREMOTEIO;
	if (res == -EREMOTEIO && lost(nio->took, nio->flushed))
		f->told_ns = clock_boottime_ns();
	pthread_mutex_unlock(&f->flushes_lock);
	return res;
}

int64_t nvmf_flush_judge(struct nvmf_nio *nio, int64_t res)
{
	if (nio->io->op == ENGINE_OP_FLUSH)
		return judge_flush(nio, res);
	/* A write that failed was told. */
	if (nio->cached && res >= 0)
		note_cached(nio->io->file, nio->cached);
	return res;
}
