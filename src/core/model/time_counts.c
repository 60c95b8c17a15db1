/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two tables of the buckets. A unit test finds each bucket by a walk over the bounds, too.
 */
#include "core/model/time_counts.h"

#define US 1000ULL
#define MS 1000000ULL
#define S  1000000000ULL

const uint64_t time_bounds_ns[TIME_BUCKETS] = {
    10 * US,   25 * US, 50 * US,   100 * US, 250 * US, 500 * US,   MS,
    2500 * US, 5 * MS,  10 * MS,   25 * MS,  50 * MS,  100 * MS,   250 * MS,
    500 * MS,  S,       2500 * MS, 5 * S,    10 * S,   UINT64_MAX,
};

const unsigned char time_octaves[64] = {
    [14] = 1,  [15] = 2,  [16] = 3,  [17] = 4,  [18] = 5,  [19] = 6,  [20] = 7,
    [21] = 7,  [22] = 8,  [23] = 9,  [24] = 10, [25] = 11, [26] = 12, [27] = 13,
    [28] = 14, [29] = 15, [30] = 16, [31] = 16, [32] = 17, [33] = 18, [34 ... 63] = 19,
};
