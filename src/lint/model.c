/* SPDX-License-Identifier: Apache-2.0 */
#include "lint/lint.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"

void lint_check_model(const struct lint_run *run, struct lint_model *m)
{
    struct model_config *c = NULL;
    char *path = mem_printf("%s/config.pbtxt", m->directory);
    (void)run;
    struct status *st = model_config_read_file(path, &c);
    if (st)
        lint_add(&m->found, LINT_SYNTAX, (struct lint_place){.file = path}, NULL, "%s",
                 status_message(st));
    status_free(st);
    model_config_free(c);
    mem_free(path);
}
