/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server does about each field of a configuration: the tables of honoured.c.
 */
#ifndef CONCH_CORE_CONFIG_HONOURED_H
#define CONCH_CORE_CONFIG_HONOURED_H

#include "core/config/config.h"

enum config_answer {
    CONFIG_YES,   /* the server or the backend acts upon it */
    CONFIG_TUNES, /* tunes the speed of hardware that is not supported: accepted, no effect */
    CONFIG_LOOK,  /* a message: each of its fields has an answer of its own */
    CONFIG_NO,    /* refused when it is set */
};

struct config_line {
    const char *field;
    enum config_answer answer;
};

struct config_table {
    const ProtobufCMessageDescriptor *type;
    const struct config_line *lines; /* all fields, by number; ended by a NULL field */
};

extern const struct config_table config_tables[];
extern const size_t config_n_tables;

/* config_table_of - the table of a message type; NULL: its fields are not examined. */
const struct config_table *config_table_of(const ProtobufCMessageDescriptor *type);

#endif
