/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a piece of text may be: names, paths, patterns, labels. One judge for documents and for
 * images, so that an image cannot carry what a document may not.
 */
#ifndef ROS2_POLICY_TEXT_H
#define ROS2_POLICY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* NULL when good, else what is wrong ("has an empty segment"). */
const char *text_namespace_path_fault(const char *s);
const char *text_root_fault(const char *s);
const char *text_pattern_fault(const char *s);
bool text_label_key_valid(const char *s);
bool text_label_value_valid(const char *s);

/* A path someone asks about: its start behind one leading '/', or NULL when it is not a path of a
 * namespace. */
const char *text_question_path(const char *path);
/* @pattern passed text_pattern_fault; @path came from text_question_path. */
bool text_pattern_match(const char *pattern, const char *path);
/* May @pattern match anything below the directory @dir (both checked)? In doubt, yes. */
bool text_pattern_below(const char *pattern, const char *dir);
/* Is @inner the same path as @outer or below it? Both normalised. */
bool text_path_within(const char *outer, const char *inner);
/* Order in which a path stands directly before everything below it. */
int text_path_compare(const char *a, const char *b);
#endif
