/* SPDX-License-Identifier: Apache-2.0 */
/* `conch config`: the completed configuration of one model. */
#ifndef CONCH_SHOW_CONFIG_H
#define CONCH_SHOW_CONFIG_H

/*
 * show_config_main - loads a model without opening a port, and prints its config.pbtxt with all
 * that the server and the backend have completed.
 *
 * @argv  argv[0] is "config"; one other argument is a file of ONNX, a model's folder or its
 *        config.pbtxt, and the rest are options of the server
 * Returns the exit code: 1 if the model cannot be loaded, 2 if the arguments are wrong.
 */
int show_config_main(int argc, char *const argv[]);

#endif
