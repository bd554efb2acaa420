/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/controller/held_submit.h"
#include "controller/store.h"
#include "tests/testing.h"

_Atomic bool hold_next;

static struct {
	struct store *s;
	struct store_txn *t;
	store_done_fn done;
	void *arg;
} held;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	if (!hold_next || !t || !done)
		return __real_store_submit(s, t, done, arg, err);
	held.s = s;
	held.t = t;
	held.done = done;
	held.arg = arg;
	hold_next = false;
	return 0;
}

void held_let_go(void *arg)
{
	assert_int_equal(__real_store_submit(held.s, held.t, held.done, held.arg, NULL), 0);
}
