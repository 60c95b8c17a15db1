/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server does about each field of a configuration: the tables of honoured.c.
 */
#ifndef CONCH_CORE_CONFIG_HONOURED_H
#define CONCH_CORE_CONFIG_HONOURED_H

#include "core/config/config.h"

enum config_answer {
    CONFIG_YES,   /* acted upon, or for the backend to act upon */
    CONFIG_TUNES, /* only speed on hardware that is not there: accepted, without effect */
    CONFIG_LOOK,  /* a message: its own fields tell */
    CONFIG_NO,    /* refused as soon as it is set */
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

/* config_table_of - NULL for a message that is never looked into. */
const struct config_table *config_table_of(const ProtobufCMessageDescriptor *type);

#endif
