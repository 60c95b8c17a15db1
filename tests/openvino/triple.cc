// SPDX-License-Identifier: Apache-2.0
/*
 * triple - an extension of OpenVINO with one operator: Triple, three times its input.
 * tests/system/test_openvino_extensions.py compiles it.
 */
#include <openvino/core/op_extension.hpp>
#include <openvino/op/op.hpp>

namespace triple
{

class Triple : public ov::op::Op
{
  public:
    OPENVINO_OP("Triple", "conch");

    Triple() = default;
    explicit Triple(const ov::OutputVector &inputs) : Op(inputs)
    {
        constructor_validate_and_infer_types();
    }

    void validate_and_infer_types() override
    {
        set_output_type(0, get_input_element_type(0), get_input_partial_shape(0));
    }

    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector &inputs) const override
    {
        return std::make_shared<Triple>(inputs);
    }

    bool has_evaluate() const override
    {
        return true;
    }

    bool evaluate(ov::TensorVector &outputs, const ov::TensorVector &inputs) const override
    {
        outputs[0].set_shape(inputs[0].get_shape());
        for (size_t i = 0; i < inputs[0].get_size(); i++)
            outputs[0].data<float>()[i] = 3 * inputs[0].data<const float>()[i];
        return true;
    }
};

} // namespace triple

OPENVINO_CREATE_EXTENSIONS(
    std::vector<ov::Extension::Ptr>({std::make_shared<ov::OpExtension<triple::Triple>>()}));
