#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

// What the arguments are is said in guided_bitmask_cuda/guided_bitmask.cuh and torch-ext/guided_bitmask/__init__.py.

void apply_bitmask_(at::Tensor &logits, at::Tensor const &bitmask, std::optional<at::Tensor> const &row_slots,
                    std::optional<at::Tensor> const &alive);

void automaton_step_(at::Tensor &logits, at::Tensor const &tokens, at::Tensor const &length,
                     at::Tensor &shadow, at::Tensor &history, at::Tensor &known,
                     at::Tensor const &language_of, at::Tensor const &start, at::Tensor const &limit,
                     at::Tensor const &think_until, at::Tensor const &languages, at::Tensor const &token_bytes, at::Tensor const &token_start,
                     at::Tensor const &token_length, at::Tensor const &stops, at::Tensor &claims,
                     at::Tensor &masks, at::Tensor &state_of, at::Tensor &slot_of, at::Tensor &work,
                     at::Tensor &work_count, std::optional<at::Tensor> const &alive);

void build_masks_(at::Tensor const &work, at::Tensor const &work_count, at::Tensor const &languages,
                  at::Tensor const &token_bytes, at::Tensor const &token_start, at::Tensor const &token_length,
                  at::Tensor const &stops, at::Tensor &masks);

void masked_sample_(at::Tensor &next_tokens, at::Tensor &best, at::Tensor const &logits,
                    at::Tensor const &bitmask, std::optional<at::Tensor> const &row_slots,
                    at::Tensor const &temperature, at::Tensor const &seed, at::Tensor const &position);
