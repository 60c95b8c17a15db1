/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's clock. It has no state: clock.h reads the time without it. */
#include "base/clock.h"

struct clock machine_clock;
