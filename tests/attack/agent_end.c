/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_end.h. */
#include "tests/attack/agent_end.h"
#include <string.h>

int end_session(struct site *site, enum tenant who, struct end *e)
{
	*e = (struct end){.site = site, .who = who};
	return site->session(site, who, &e->s);
}

int end_settle(struct end *e)
{
	struct wire_header h = {.opcode = WIRE_WINDOW, .offset = PEER_TARGET};
	int r = e->site->prepare(e->site, e->who, &e->s, (uintptr_t)peer_target(e->p));

	if (!r)
		r = peer_bind(e->p, &e->window);
	h.key = e->s.key;
	h.generation = e->s.generation;
	h.address = (uintptr_t)peer_target(e->p);
	h.handle = e->window;
	return r ? r : peer_send(e->p, &h, NULL);
}

int end_come(struct site *site, enum tenant who, struct end *e)
{
	int r = end_session(site, who, e);

	if (!r)
		r = peer_open(&e->p, e->s.data);
	if (!r)
		r = peer_join(e->p, &e->s);
	return r ? r : end_settle(e);
}

void end_leave(struct end *e)
{
	peer_close(e->p);
	if (e->site && e->s.data[0])
		(void)e->site->close(e->site, e->who, &e->s);
	e->p = NULL;
}

int end_ask(struct end *e, struct wire_header h, struct wire_header *ret)
{
	int r;

	h.request_id = ++e->next_id;
	r = peer_send(e->p, &h, NULL);
	while (!r) {
		r = peer_receive(e->p, ret, END_WAIT_MS);
		if (!r && ret->request_id == h.request_id)
			break;
	}
	return r;
}

struct wire_header end_request(const struct end *e, enum wire_opcode op)
{
	return (struct wire_header){.opcode = op,
	                            .handle = e->s.handle,
	                            .address = (uintptr_t)peer_target(e->p),
	                            .length = END_BLOCK,
	                            .key = e->s.key,
	                            .generation = e->s.generation};
}

bool end_works(struct end *e)
{
	uint8_t *mem = peer_target(e->p), fill = (uint8_t)(e->next_id * 37 + 1);
	struct wire_header got;

	memset(mem, fill, END_BLOCK);
	if (end_ask(e, end_request(e, WIRE_WRITE), &got) || got.opcode != WIRE_COMPLETE ||
	    got.status)
		return false;
	memset(mem, 0, END_BLOCK);
	if (end_ask(e, end_request(e, WIRE_READ), &got) || got.opcode != WIRE_COMPLETE ||
	    got.status)
		return false;
	for (uint32_t i = 0; i < END_BLOCK; i++)
		if (mem[i] != fill)
			return false;
	return true;
}
