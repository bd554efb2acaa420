/* SPDX-License-Identifier: Apache-2.0 */
/* The negative control of the counters: one thread with a reactor's name does what none may do. */
#include "tests/dataplane/steady.h"
#include "tests/testing.h"
#include <pthread.h>
#include <semaphore.h>

static void *allocates_and_locks(void *arg)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	void *volatile p;

	sem_wait(arg); /* until it has its name */
	p = malloc(10);
	free(p);
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	return NULL;
}

void steady_counter__sees_a_reactor_thread_that_allocates_and_locks(void **state)
{
	struct count_calls *counts = count_calls();
	uint64_t alloc = atomic_load(&counts->alloc), lock = atomic_load(&counts->lock);
	pthread_t t;
	sem_t go;

	sem_init(&go, 0, 0);
	assert_int_equal(pthread_create(&t, NULL, allocates_and_locks, &go), 0);
	pthread_setname_np(t, "reactor9");
	sem_post(&go);
	pthread_join(t, NULL);
	sem_destroy(&go);
	assert_true(atomic_load(&counts->alloc) >= alloc + 2);
	assert_true(atomic_load(&counts->lock) >= lock + 1);
}
