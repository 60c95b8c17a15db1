/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONCH_CORE_REPO_MODEL_MAPPING_H
#define CONCH_CORE_REPO_MODEL_MAPPING_H

/* A model whose name differs from that of its folder. */
struct model_mapping {
    const char *folder; /* in the repository; may be deeper in it ("group/digits") */
    const char *name;
};

#endif
