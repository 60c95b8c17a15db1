/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parameter of the agent: "MD5:1/model.onnx" or "SHA256:1/model.onnx", with the digest of the
 * file as its value.
 */
#ifndef CHECKSUM_RULE_H
#define CHECKSUM_RULE_H

enum checksum_algorithm { CHECKSUM_MD5, CHECKSUM_SHA256 };

/* What is wrong with the name of a parameter. */
enum rule_fault {
    RULE_FINE,
    RULE_NO_COLON,
    RULE_UNKNOWN_ALGORITHM,
    RULE_NO_FILE,
    RULE_OUTSIDE, /* the file is outside the model's folder */
};

struct checksum_rule {
    enum checksum_algorithm algorithm;
    const char *file; /* relative to the model's folder; points into the parameter's name */
};

/* checksum_rule_read - reads the name of a parameter; *ret_rule is set if it is fine. */
enum rule_fault checksum_rule_read(const char *name, struct checksum_rule *ret_rule);

const char *checksum_algorithm_name(enum checksum_algorithm a);

#endif
