/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metric - the types MetricFamily and Metric: a model's own metrics on the server's page.
 */
#ifndef BACKENDS_PYTHON_CHILD_METRIC_H
#define BACKENDS_PYTHON_CHILD_METRIC_H

#include "python/child/child.h"

int metric_init(PyObject *module);

#endif
