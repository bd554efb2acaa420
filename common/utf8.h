/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that came from others, before people see it or a message carries it. One judge of what is
 * UTF-8 and of what may be shown: a control character, a change of writing direction or an
 * invisible character can forge a line, drive a terminal or make a name look like another. Pure;
 * any thread.
 */
#ifndef ROS2_COMMON_UTF8_H
#define ROS2_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Length in bytes (1 to 4) of the character at @s, of which @n bytes may be read, and the character
 * itself; 0 when it is none (RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF). */
size_t utf8_decode(const char *s, size_t n, uint32_t *ret_cp);
/* False for C0 and C1 controls, DEL, line and paragraph separators, the directional marks,
 * embeddings, overrides and isolates (UAX 9), invisible characters that no script needs, the byte
 * order mark and non-characters. */
bool utf8_printable(uint32_t cp);
/* True when all of @s is UTF-8 and printable. */
bool utf8_text_printable(const char *s);

/* Copies @s into @out (@max bytes with the NUL, at least 1) with each byte of what is not printable
 * UTF-8 as \xNN. What does not fit is left out, never half a character or half an escape. Returns
 * the length. */
size_t utf8_escape(const char *s, char *out, size_t max);
/* In place: each byte of what is not printable UTF-8 becomes '?'. The length stays. */
void utf8_clean(char *s);

#ifdef __cplusplus
}
#endif
#endif
