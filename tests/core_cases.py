"""Cases that `make test` runs, for tests with many similar cases.

`make test-all` runs the others, which are marked `more`.

Keys are test ids without their cases, in which `*` stands for anything; a case
is core if one of its words is among a row's words, or the words that are
joined by `-` here stand in it in that order.
"""

from fnmatch import fnmatch

import pytest

CORE = {
    "test_applications.py::test_trained_weights_without_the_top": ("highway_a",),
    "test_bias_gradients.py::test_no_variant_has_a_bias_that_does_not_learn": (
        ("highway50", "resnet110", "mnist10_w16", "cifar10_19layer", "highway_fc10", "highway_fc1000")
    ),
    "test_blocks.py::test_contract": ("coupled-same", "full-same", "residual-same"),
    "test_blocks.py::test_options": ("coupled",),
    "test_char_lm.py::test_each_word_once_has_the_same_loss_and_gradients": ("full",),
    "test_char_lm.py::test_every_gating_learns": ("coupled", "full"),
    "test_char_lm_oracle.py::test_ten_steps_are_those_of_pytorch": ("full",),
    "test_dense_stack.py::test_equals_a_chain_of_layers": ("coupled", "full-same-4", "plain-same-4"),
    "test_dense_stack.py::test_signals_are_those_of_the_layers": ("coupled", "full"),
    "test_exporting.py::test_networks_of_pixels_and_of_double_precision": ("uint8",),
    "test_exporting.py::test_the_part_of_a_language_model_that_makes_vectors_of_words": ("onnx",),
    "test_guided.py::test_all_blocks_of_a_stage": ("conv_stack",),
    "test_guided.py::test_receptive_fields_are_what_changes_the_unit": ("conv_stack", "conv_net"),
    "test_results_of_runs.py::test_evaluate_compares_with_no_other_images": ("limits0",),
    "test_results_of_runs.py::test_verify_compares_with_no_other_images": ("limits0",),
    "test_trace.py::test_an_analysis_leaves_the_state_as_it_was": ("own-trace", "keras-trace", "own-measure"),
    "test_layers.py::test_conv_contract": ("same", "coupled-low_rank", "full-channel", "coupled-tied"),
    "test_layers.py::test_dense_contract": ("same", "coupled-low_rank", "full-channel", "coupled-tied"),
    "test_lesions.py::test_a_lesion_curve_is_that_of_the_rewired_networks": (
        ("dense_stack-changes4", "dense_stack-changes5", "conv_stack", "conv_net-changes8")
    ),
    "test_lesions.py::test_any_plans_in_one_batch": ("same",),
    "test_applications.py::test_weights_of_another_input_shape_are_refused": ("shape0",),
    "test_results_of_runs.py::test_the_command_that_is_printed_measures_the_photographs": ("False-shards",),
    "test_oracles.py::test_*_the_oracles*": ("resnet50",),
    "test_oracles.py::test_state_comes_back_as_it_was_set": ("resnet50",),
    "test_run_folder.py::test_a_run_does_not_resume_with_other_images_or_another_order": ("other1",),
    "test_publishing.py::test_verify_finds_what_is_wrong": ("weights", "row"),
    "test_publishing.py::test_a_model_saved_under_a_policy_computes_the_same_without_it": ("mixed_bfloat16",),
    "test_recipes.py::test_tiny_forms_train_by_the_command": ("mnist10_w16", "highway_fc50_cifar100"),
    "test_resnet_to_highway.py::test_the_same_function_at_every_depth": ("resnet50-same",),
    "test_rewire.py::test_identity_and_lesion_of_every_gating": (
        ("conv_net-coupled", "conv_net-residual", "conv_stack-full", "conv_stack-t_only", "dense_stack")
    ),
    "test_shards.py::test_shards_give_the_batches_of_their_folder": ("changes0",),
    "test_start.py::test_classes_of_other_names_have_a_fresh_head": ("acb", "abd"),
    "test_trace.py::test_trace_recomputes_the_forward_pass_exactly": (
        ("conv_net-full", "conv_net-low_rank", "conv_stack", "dense_stack", "bottleneck")
    ),
    "test_trainable.py::test_losses_metrics_and_schedules_of_ones_own": ("enable_lora",),
    "test_training.py::test_resume_is_exact_wherever_writing_ends": ("checkpoint.npz",),
    "test_training.py::test_a_file_that_a_kill_left_out_at_the_end_is_written": ("result.json",),
    "test_variants.py::test_a_miniature_trains_and_comes_back_from_a_file": (
        *("highway50", "highway_full50_uie_nobn", "highway_resnet50", "resnet110", "exclusive110", "postact110_zerobn"),
        *("mnist10_w16", "highway_a", "highway_fc10", "highway_fc1000", "plain_fc10"),
    ),
    "test_variants.py::test_any_variant_under_any_gating": ("full", "c_only", "highway_fc10"),
    "test_variants.py::test_weights_files_and_mixed_precision": ("highway110", "highway_fc50_tanh"),
    "test_weights.py::test_a_shipped_network_has_the_arrays_of_its_file": (
        "mnist10_w16.tvdn",
        "highway20.blog",
        "highway50.imagenette",
    ),
}


def is_more(item: pytest.Item) -> bool:
    """Whether a test is one of the similar cases that `make test` leaves out."""
    # A case may hold a path itself: only what stands before it is the function's.
    where, _, case = item.nodeid.partition("[")
    function = where.rpartition("/")[2]
    if not case:
        return False
    joined = f"-{case.removesuffix(']')}-"
    return any(
        fnmatch(function, name) and not any(f"-{words}-" in joined for words in core) for name, core in CORE.items()
    )
