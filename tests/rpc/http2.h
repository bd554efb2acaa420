/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 (RFC 9113) without a library, over mTLS, for what none of them sends: frames that cost the
 * caller next to nothing, as many as the connection takes. A caller with a library would be held to
 * the streams that the server allows at once, and would wait for its answers.
 */
#ifndef ROS2_TESTS_RPC_HTTP2_H
#define ROS2_TESTS_RPC_HTTP2_H

#include <stdbool.h>
#include <stdint.h>

struct http2;
/* Connects @target (host:port) from 127.0.0.@host, with these PEM files; its calls are of @path.
 * NULL: it is refused. The caller's process ignores SIGPIPE. */
struct http2 *http2_open(const char *target, uint8_t host, const char *cert, const char *key,
                         const char *path);
/* The same, and with the last packet of its handshake come @n frames of headers without an end. */
struct http2 *http2_open_in_pieces(const char *target, uint8_t host, const char *cert,
                                   const char *key, unsigned n);
void http2_close(struct http2 *h);

enum http2_flood {
	HTTP2_RESETS,        /* calls, each reset at once: rapid reset, CVE-2023-44487 */
	HTTP2_CALLS,         /* calls of which nothing more comes, beyond what may be open */
	HTTP2_PINGS,         /* each of which wants an answer: CVE-2019-9512 */
	HTTP2_SETTINGS,      /* as well: CVE-2019-9515 */
	HTTP2_EMPTY,         /* DATA without a byte of one call: CVE-2019-9518 */
	HTTP2_CONTINUATIONS, /* of headers that never end: CVE-2024-27316 */
	HTTP2_WINDOWS,       /* WINDOW_UPDATE by a byte */
	HTTP2_PRIORITIES,
	HTTP2_UNKNOWN, /* of a type that nobody knows: RFC 9113, 4.1 */
	HTTP2_UNREAD,  /* calls of whose answers no byte is taken: 6.9.2 */
	HTTP2_FLOODS
};
/* By its name, as hostile-flood has it; HTTP2_FLOODS: there is none of that name. */
enum http2_flood http2_find(const char *name);
/* @n frames (or calls) of this @kind, one kind for each connection. What the server says is read
 * and dropped. 0, or -EPIPE when it has ended the connection, or took nothing for ten seconds. */
int http2_send(struct http2 *h, enum http2_flood kind, unsigned n);
/* Headers without an end: a name of @name bytes (a multiple of 5, at least 130), and @n frames of a
 * byte each of what it names (CVE-2023-33953). Returns as http2_send does. */
int http2_send_pieces(struct http2 *h, uint32_t name, unsigned n);
/* One call, its headers in so many frames. Likewise. */
int http2_call_in(struct http2 *h, uint32_t frames);
/* From here on a record of TLS has no more than so many bytes. */
void http2_cut(struct http2 *h, int bytes);
/* From here on nothing is read of what the server says, and little is kept of it. */
void http2_deafen(struct http2 *h);
/* One call with this message, of whose answer no byte is taken: the window of its stream is 0 (RFC
 * 9113, 6.9.2). Returns as http2_send does. */
int http2_call_unread(struct http2 *h, const void *message, uint32_t n);
/* Whether the server's kernel has all of it: SIOCOUTQ, tcp(7). */
bool http2_arrived(const struct http2 *h);

#endif
