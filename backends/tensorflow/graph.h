/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - what an execution of some outputs of a GraphDef would do: does it change variables or
 * keep tensors, and how many nodes does it take?
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_TENSORFLOW_GRAPH_H
#define BACKENDS_TENSORFLOW_GRAPH_H

#include "common/backend.h"
#include "common/message.h"

/* The most attributes of functions that stand in each other: protobuf reads no more. */
#define GRAPH_MAX_NESTED 33

/* What graph_look() has found. */
struct graph_facts {
    size_t n_nodes;  /* that the outputs need, those of the functions called included */
    char writer[64]; /* an operator among them that changes a variable; "": there is none */
    bool keeps;      /* an operator among them may keep a tensor for later executions */
    bool variables;  /* an operator among them is a variable */
};

/*
 * graph_look - look at the nodes that some outputs need.
 * @graph   a GraphDef
 * @places  of the outputs: "add:0"
 * @ret_ok  false: the message is malformed
 * Errors: UNAVAILABLE  no memory
 */
TRITONSERVER_Error *graph_look(struct message_bytes graph, const char *const *places, size_t n,
                               struct graph_facts *ret_facts, bool *ret_ok);

#endif
