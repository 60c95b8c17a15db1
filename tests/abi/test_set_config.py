# SPDX-License-Identifier: Apache-2.0
"""What a backend does to a model's configuration while it loads, in right and in wrong ways, and how our server reacts.

The models are those of tests/conformance/corpus/set_config.txt, with which the genuine Triton is compared; the backend
is tests/plugins/accept/accept.c.
"""

import json
import re
import urllib.request

import pytest

import corpus
import server as servers

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="tests/conformance asks the genuine Triton")

A = {"name": "a", "data_type": "TYPE_FP32", "dims": [1]}
VALUE = "invalid value {} for type {}"
SET = ", in what the backend has set"
DONE = " (config.pbtxt, as the backend has completed it)"
ENUM, POLICY = "type.googleapis.com/inference.DataType", "type.googleapis.com/inference.ModelTransactionPolicy"

# The error's text, or parts of the resulting configuration.
EXPECTED = {
    "c_nothing": {"max_batch_size": 0, "input": [], "output": []},
    "c_all": {"max_batch_size": 4, "input": [{"name": "a", "dims": [-1, 3]}], "output": [{"name": "b", "data_type": "TYPE_STRING"}],
              "model_transaction_policy": {"decoupled": True}},
    "c_tensors": {"max_batch_size": 0, "input": [{"dims": [-1, 3], "optional": True}]},
    "c_camel_case": {"max_batch_size": 4, "input": [A]},
    "c_replaces_tensors": {"max_batch_size": 2, "input": [{"name": "new", "dims": [3]}], "output": []},
    "c_takes_away": {"max_batch_size": 0, "input": [], "output": []},
    "c_other_fields": {"name": "c_other_fields", "backend": "accept", "platform": "", "runtime": "", "default_model_filename": "",
                       "version_policy": {"latest": {"num_versions": 1}}, "instance_group": [{"count": 1}], "metric_tags": {},
                       "model_warmup": [], "cc_model_filenames": {}},
    "c_batch_io": {"input": [A], "batch_input": []},
    "c_twice": {"max_batch_size": 2, "input": [], "output": [{"name": "b"}]},
    "c_not_json": "1:19: max_batch_size: Invalid value." + SET,
    "c_empty_text": "1:1: The document is empty." + SET,
    "c_array": ": Root element must be a message. (1:1: expected an object)" + SET,
    "c_number": ": Root element must be a message. (1:1: expected an object)" + SET,
    "c_null": ": Root element must be a message. (1:1: expected an object)" + SET,
    "c_unknown_field": 'max_batch_sizes: Cannot find field. (1:20: did you mean "max_batch_size"?)' + SET,
    "c_unknown_field_inside": '(input[0]) nome: Cannot find field. (1:19: did you mean "name"?)' + SET,
    "c_wrong_type": '(max_batch_size): invalid value "many" for type TYPE_INT32 (1:19: expected an integer)' + SET,
    "c_number_as_text": {"max_batch_size": 4},
    "c_number_as_float": {"max_batch_size": 4},
    "c_number_too_large": "(max_batch_size): invalid value 4294967296 for type TYPE_INT32 (1:19: integer out of range, from "
                          "-2147483648 to 2147483647 are fine)" + SET,
    "c_enum_case": {"input": [A]},
    "c_enum_number": {"input": [A]},
    "c_enum_unknown": f'(input[0].data_type): invalid value "FLOAT" for type {ENUM} (1:35: did you mean "TYPE_FP32"?)' + SET,
    "c_nulls": {"max_batch_size": 0, "input": []},
    "c_object_for_list": "model input 'a' must specify 'data_type' for c_object_for_list" + DONE
                         + ": for example data_type: TYPE_FP32",
    "c_version": "model configuration version 2 not supported, supported versions are: 1",
    "c_version_zero": "model configuration version 0 not supported, supported versions are: 1",
    "c_negative_batch": "'max_batch_size' must be non-negative value for c_negative_batch" + DONE
                        + ": 0 is a model without a batch dimension",
    "c_input_without_name": "model input must specify 'name' for c_input_without_name" + DONE,
    "c_input_without_dims": "model input 'a' must specify 'dims' for c_input_without_dims" + DONE
                            + ": for example dims: [ -1 ], or dims: [ 1 ] for a single value",
    "c_output_dim": "model output 'a' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for c_output_dim"
                    + DONE,
    "c_scheduler_dynamic": {"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 7}},
    "c_scheduler_sequence": {"sequence_batching": {"max_sequence_idle_microseconds": 1000000}},
    "c_scheduler_ensemble": "ensemble scheduling cannot be set for model 'c_scheduler_ensemble' whose platform is not ensemble" + DONE
                            + ': an ensemble has platform: "ensemble"',
    "c_scheduler_same": {"dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 5}},
    "c_scheduler_other": "Cannot update scheduling choice from 11 to 13 when auto-completing. (from dynamic_batching to sequence_batching)",
    "c_scheduler_other_back": "Cannot update scheduling choice from 13 to 11 when auto-completing. (from sequence_batching to "
                              "dynamic_batching)",
    "c_scheduler_away": "Cannot update scheduling choice from 11 to 0 when auto-completing. (from dynamic_batching to none)",
    "c_scheduler_away_sequence": "Cannot update scheduling choice from 13 to 0 when auto-completing. (from sequence_batching to none)",
    "c_scheduler_wrong_sizes": "dynamic batching preferred size must be <= max batch size for c_scheduler_wrong_sizes" + DONE
                               + ": max_batch_size is 4",
    "c_below_preferred": "dynamic batching preferred size must be <= max batch size for c_below_preferred (config.pbtxt:3:20): "
                         "max_batch_size is 4",
    "c_below_default_preferred": "dynamic batching preferred size must be <= max batch size for c_below_default_preferred "
                                 "(config.pbtxt:3:1): max_batch_size is 4",
    "c_two_schedulers": '1:44: sequence_batching: given along with "dynamic_batching", only one of them may be' + SET,
    "c_decoupled": {"model_transaction_policy": {"decoupled": True}},
    "c_decoupled_away": {"model_transaction_policy": {"decoupled": False}},
    "c_decoupled_kept": {"model_transaction_policy": {"decoupled": True}},
    "c_decoupled_with_cache": "Response Cache does not currently support model c_decoupled_with_cache with 'decoupled' transaction "
                              "policy. Please disable the response cache. (config.pbtxt:2:18)",
    "c_reshape": {"max_batch_size": 2, "input": [{"dims": [1], "reshape": {"shape": []}}]},
    "c_reshape_wrong": "model input 'a' cannot have empty reshape for non-batching model as scalar tensors are not supported for "
                       "c_reshape_wrong" + DONE,
    "c_late": "the configuration of model 'c_late' can be set while it is initialized only",
    "c_error_ignored": {"max_batch_size": 1, "input": []},
    "c_error_then_fine": {"max_batch_size": 2, "input": []},
    "c_number_for_message": f"(model_transaction_policy): invalid value 3 for type {POLICY} (1:29: expected an object)" + SET,
    "c_text_for_message": f'(model_transaction_policy): invalid value "x" for type {POLICY} (1:29: expected an object)' + SET,
    "c_list_for_message": "model_transaction_policy: Proto field is not repeating, cannot start list. (1:29: expected an object)" + SET,
    "c_text_for_bool": '(model_transaction_policy.decoupled): invalid value "yes" for type TYPE_BOOL (1:42: expected true or false)'
                       + SET,
    "c_quoted_bool": '(model_transaction_policy.decoupled): invalid value "false" for type TYPE_BOOL (1:42: expected true or false)'
                     + SET,
    "c_number_for_bool": "(model_transaction_policy.decoupled): invalid value 1 for type TYPE_BOOL (1:42: expected true or false)" + SET,
    "c_number_for_text": "(input[0].name): invalid value 7 for type TYPE_STRING (1:19: expected a string)" + SET,
    "c_bool_for_text": "(input[0].name): invalid value true for type TYPE_STRING (1:19: expected a string)" + SET,
    "c_object_for_text": "(input[0]): invalid value Starting an object on a scalar field for type name (1:19: expected a string)" + SET,
    "c_fraction": "(max_batch_size): invalid value 1.5 for type TYPE_INT32 (1:19: expected an integer)" + SET,
    "c_exponent": {"max_batch_size": 2},
    "c_bool_for_number": "(max_batch_size): invalid value true for type TYPE_INT32 (1:19: expected an integer)" + SET,
    "c_object_for_number": ": invalid value Starting an object on a scalar field for type max_batch_size (1:19: expected an integer)"
                           + SET,
    "c_number_for_list": {"input": [{"name": "a", "dims": [7]}]},
    "c_list_in_list": "(input[0].dims[0]): invalid value [7 for type TYPE_INT64 (1:55: expected an integer)" + SET,
    "c_null_in_list": "(input[0]): invalid value null for type type.googleapis.com/inference.ModelInput (1:11: expected an object)"
                      + SET,
    "c_list_for_number": "max_batch_size: Proto field is not repeating, cannot start list. (1:19: expected an integer)" + SET,
    "c_list_for_map": ": invalid value Cannot bind a list to map for field 'parameters'. for type Map (1:15: expected an object)" + SET,
    "c_number_for_map": "(parameters): invalid value 3 for type type.googleapis.com/inference.ModelConfig.ParametersEntry (1:15: "
                        "expected an object)" + SET,
    "c_member_twice": "1:38: max_batch_size: given twice" + SET,
    "c_list_twice": "1:70: output: given twice" + SET,
    "c_comma_too_many": {"max_batch_size": 3},
    "c_single_quotes": {"max_batch_size": 3},
    "c_bare_names": {"max_batch_size": 3},
    "c_behind_the_end": "1:4: The document root must not be followed by other values." + SET,
    "c_enum_wrong_number": {"max_batch_size": 0},
    "c_wide_text": '(input[0].dims[0]): invalid value "9223372036854775808" for type TYPE_INT64 (1:55: integer out of range, from '
                   "-9223372036854775808 to 9223372036854775807 are fine)" + SET,
    "c_negative_unsigned": "(dynamic_batching.max_queue_delay_microseconds): invalid value -1 for type TYPE_UINT64 (1:53: integer out "
                           "of range, from 0 to 18446744073709551615 are fine)" + SET,
    "c_nan": "sequence batching minimum slot utilization must be in range (0.0, 1.0] for c_nan" + DONE,
}
MODELS = corpus.read(corpus.FOLDER / "set_config.txt")


@pytest.fixture(name="served", scope="module")
def serve(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set_config")
    for model in MODELS:
        model.write(folder / "models")
    backends = corpus.make_backends(folder / "backends", servers.BUILD)
    with servers.Server(folder / "models", flags=["--exit-on-error=false", f"--backend-directory={backends}"], ready=False) as server:
        yield server


def get(server, path, data=None):
    with urllib.request.urlopen(urllib.request.Request(f"http://{server.url}/v2/{path}", data=data), timeout=60) as answer:
        return json.loads(answer.read())


def has(got, wanted):
    """Does got have everything that wanted names?"""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(name in got and has(got[name], value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(has, got, wanted))
    return got == wanted


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_backend_sets_the_configuration(served, model):
    expected = EXPECTED[model.name]
    if isinstance(expected, dict):
        config = get(served, f"models/{model.name}/config")
        assert has(config, expected), config
        return
    rows = [row for row in get(served, "repository/index", b"{}") if row["name"] == model.name]
    assert [row["state"] for row in rows] == ["UNAVAILABLE"]
    said = rows[0]["reason"].split(": ", 1)[1]
    assert re.sub(r"\(/\S*/config.pbtxt", "(config.pbtxt", said) == expected


def test_failed_models_harm_nothing_else(served):
    """A model that fails harms neither the other models nor its own next load."""
    served.assert_alive()
    assert len(EXPECTED) == len(MODELS)
