/* SPDX-License-Identifier: Apache-2.0 */
/* OK(call) - fails the test, with the call and the message, if a function of the C API fails. */
#ifndef CONCH_TESTS_LIB_OK_H
#define CONCH_TESTS_LIB_OK_H

#define OK(call)                                                                                   \
    do {                                                                                           \
        TRITONSERVER_Error *error_ = (call);                                                       \
        if (error_)                                                                                \
            fail_msg("%s: %s", #call, TRITONSERVER_ErrorMessage(error_));                          \
    } while (0)

#endif
