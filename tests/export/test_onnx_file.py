"""What the ONNX file looks like: valid, small, readable, one file, any batch."""

import pytest

from dressage.export import export_policy
from tests.export.shipped import KINDS, PPO_KINDS, policy_of, shipped

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def model_of(kind):
    return onnx.load(str(shipped(kind).files["onnx"]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_and_shape_inference_pass_and_every_value_has_a_shape(kind):
    model = model_of(kind)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    shaped = {value.name for value in (*inferred.graph.value_info, *inferred.graph.output)}
    made = {name for node in model.graph.node for name in node.output if name}
    assert made == shaped


def test_the_graph_of_a_squashed_policy_has_eleven_nodes_with_names_that_say_what_they_make():
    nodes = [(node.op_type, node.name) for node in model_of("squashed").graph.node]
    assert nodes == [
        ("Sub", "normalized_observation/centred"),
        ("Div", "normalized_observation/scaled"),
        ("Clip", "normalized_observation"),
        ("Gemm", "hidden_0/affine"),
        ("Tanh", "hidden_0"),
        ("Gemm", "hidden_1/affine"),
        ("Tanh", "hidden_1"),
        ("Gemm", "outputs"),
        ("Tanh", "action/tanh"),
        ("Mul", "action/scaled"),
        ("Add", "action"),
    ]


def test_weights_keep_the_names_that_they_have_in_training():
    names = {weight.name for weight in model_of("squashed").graph.initializer}
    layers = {f"actor/Dense_{i}/{part}" for i in range(3) for part in ("kernel", "bias")}
    assert layers | {"observation/mean", "observation/deviation"} <= names
    assert not any("critic" in name or "log_std" in name for name in names)


def test_bounds_that_scale_nothing_cost_no_node():
    kinds = [node.op_type for node in model_of("matrix").graph.node]
    assert kinds == ["Gemm", "Tanh", "Reshape"]


@pytest.mark.parametrize("kind", PPO_KINDS)
def test_inputs_and_outputs_have_the_environments_shapes_behind_a_free_batch_axis(kind):
    graph = model_of(kind).graph
    for value in (*graph.input, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        assert dimensions[0].dim_param == "batch"
        assert all(dimension.dim_value > 0 for dimension in dimensions[1:])
    space = PPO_KINDS[kind][0]
    action = next(value for value in graph.output if value.name == "action")
    assert tuple(d.dim_value for d in action.type.tensor_type.shape.dim[1:]) == space.shape


def test_a_file_written_twice_has_the_same_bytes(tmp_path):
    path = export_policy(policy_of("squashed"), tmp_path / "policy.onnx")
    assert path.read_bytes() == shipped("squashed").files["onnx"].read_bytes()
