#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

// What the arguments are is said in torch-ext/guided_bitmask/__init__.py.
std::tuple<at::Tensor, at::Tensor> apply_masks(at::Tensor const &scores, at::Tensor const &masks,
                                               at::Tensor const &slots, std::optional<at::Tensor> const &own,
                                               std::optional<at::Tensor> const &stops,
                                               std::optional<at::Tensor> const &log_sums);
