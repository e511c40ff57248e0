"""Takes the handling of one mode away at a time, and looks whether a test fails: ``python -m tests.removals``.

Works on a copy of the tree. A test that passes without what it is there for is worth nothing; such a removal is
printed as SURVIVED, and the exit status is 1. With arguments, only removals whose name holds one of them are made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MODES = "tests/integration/test_generation_modes.py"
SEAM = "tests/integration/test_processor_seam.py"
BAD = "tests/integration/test_bad_input.py"
PIPELINE = "tests/integration/test_pipeline.py"
BUDGET = "tests/integration/test_budget.py"
LOOKAHEAD = "tests/unit/test_lookahead.py"
WORKER = "tests/unit/test_background_worker.py"
DECODER = "tests/integration/test_decoder.py"
ARGUMENTS = "tests/integration/test_decoder_arguments.py"
DRAFTED = "tests/integration/test_decoder_drafts.py"
FORCED = "tests/property/test_forced.py"
CONTINUATION = "tests/property/test_continuation.py"
VERIFY = "tests/unit/test_verify.py"
BATCHING = "tests/integration/test_continuous_batching.py"
READING = "tests/unit/test_tool_parser.py"
THINKING = "tests/integration/test_reasoning.py"
AROUND_MARKERS = "tests/property/test_reasoning.py"
TRACE = "tests/integration/test_trace.py"
TRACE_PAGE = "tests/integration/test_trace_page.py"
SHUTDOWN = "tests/unit/test_shutdown.py"
STREAMING = "tests/integration/test_streaming.py"
ASYNC = "tests/integration/test_agenerate.py"
UNKNOWN = "tests/unit/test_generate_arguments.py"
PARTIAL_MODELS = "tests/unit/test_partial_models.py"
RESULT_HTML = "tests/unit/test_result_html.py"
PARTIAL_JSON = "tests/property/test_partial_json.py"
SEEDS = "tests/integration/test_seeds.py"
SPREAD = "tests/integration/test_tensor_parallel.py"
BATCH = "tests/integration/test_batch.py"
PARTS = "tests/unit/test_batch_parts.py"
SERVED = "tests/unit/test_answers.py"
WITH_LOOKAHEAD = "tests/property/test_lookahead.py::test_lookahead_does_not_change_the_outcome"
PASSED, FAILED = 0, 1  # pytest's exit status when all tests that ran passed, and when some failed


class Removal(NamedTuple):
    """One piece of handling.

    Args:
        name: what is taken away.
        file: where, under hf_guided/.
        old: the text that handles it; stands there once.
        new: what is left without it.
        test: the test that has to fail, as pytest names it.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


def mode(name: str, kind: str = "schema", vocabulary: str = "demo") -> str:
    """A cell of the table of modes."""
    return f"{MODES}::test_finished_outputs_are_in_the_language[{name}-{kind}-{vocabulary}]"


REMOVALS = [
    Removal(
        "compiles: they are notified of the end of the interpreter",
        "backends/compile.py",
        "    interpreter_ends.set()\n",
        "",
        SHUTDOWN,
    ),
    Removal(
        "compiles: the end of the interpreter waits for them",
        "backends/compile.py",
        "        jobs[0].wait(left)\n",
        "        break\n",
        SHUTDOWN,
    ),
    Removal(
        "reasoning: what a prompt holds already",
        "session/session.py",
        "self._requests.new_rows(num_rows, self._ids, self._limit, self._filler.warn_once)",
        "self._requests.new_rows(num_rows, None, self._limit, self._filler.warn_once)",
        f"{THINKING}::test_hot_models_think_and_answer[demo-beams]",
    ),
    Removal(
        "reasoning: the bytes after the marker belong to the answer",
        "session/reasoning_gate.py",
        "self._beginnings.of(moved.rest)",
        "self._beginnings.of(b'')",
        f"{AROUND_MARKERS}::test_masks_equal_a_search_for_the_marker",
    ),
    Removal(
        "reasoning: a marker that overlaps with itself",
        "session/reasoning.py",
        "            matched = self._shorter[matched]\n        return matched + ",
        "            matched = 0\n        return matched + ",
        f"{AROUND_MARKERS}::test_masks_equal_a_search_for_the_marker",
    ),
    Removal(
        "reasoning: room is left for the marker",
        "session/reasoning_gate.py",
        "            if room >= gate.max_tokens_to_end + least:\n",
        "            if room >= least:\n",
        f"{AROUND_MARKERS}::test_answer_is_complete_within_the_budget",
    ),
    Removal(
        "reasoning: special tokens are text inside the marker only",
        "session/reasoning.py",
        " or (token_id in self._special and matched < len(data))",
        "",
        # It has this case by hand; the property draws other examples whenever its source changes.
        "tests/unit/test_reasoning.py::test_gate_with_special_tokens_as_markers",
    ),
    Removal(
        "reasoning: grammar drafts begin after the thinking",
        "hf/drafts/grammar.py",
        "            del output[:thought]\n",
        "",
        f"{THINKING}::test_grammar_drafts_begin_behind_the_thinking",
    ),
    Removal(
        "greedy and sampling: the mask itself",
        "session/session.py",
        "        return masked\n\n    def look_ahead(",
        "        return scores\n\n    def look_ahead(",
        mode("sampling"),
    ),
    Removal(
        "num_return_sequences: rows of one prompt are neighbours",
        "session/requests.py",
        "self._row_at(i // group_size,",
        "self._row_at(i % groups,",
        f"{PIPELINE}::test_batches_with_several_sequences",
    ),
    Removal(
        "beams: permuted rows are found by their tokens",
        "session/tracker.py",
        "        parents = self._parents(ids, self._group_size)\n",
        "        parents = None\n",
        mode("beams", "pydantic"),
    ),
    Removal(
        "beams: a parent of two is forked",
        "session/tracker.py",
        "self.rows[parent].fork() if parent in taken else self.rows[parent]",
        "self.rows[parent]",
        "tests/property/test_tracker.py::TestGeneration::runTest",
    ),
    Removal(
        "beams: only among rows of the same constraint",
        "session/tracker.py",
        "index_of.get((i // group_size, new.tobytes()), -1)",
        "index_of.get((0, new.tobytes()), -1)",
        f"{MODES}::test_beams_of_different_prompts_keep_to_their_own_constraint",
    ),
    Removal(
        "dead beams: a row that left its grammar is closed",
        "session/row.py",
        "        self.tail.append(token_id)\n        self.is_open = False\n",
        "",
        f"{BAD}::test_forced_token_closes_that_row_alone",
    ),
    Removal(
        "beams past their end: what follows a stop token is no violation",
        "session/row.py",
        "        if not self.is_open:\n            self.tail",
        "        if self.tail:\n            self.tail",
        "tests/unit/test_row.py::test_rewind_reopens_a_stopped_row",
    ),
    Removal(
        "assisted: rejected drafts are taken back",
        "session/tracker.py",
        "            self.rows[parent].rewind(back)\n",
        "            pass\n",
        f"{MODES}::test_same_tokens_as_plain_greedy[assisted-schema]",
    ),
    Removal(
        "assisted: the processor is the assistant's too",
        "session/tracker.py",
        "if length <= last and not self._rewind_is_ours(ids, parents):",
        "if length <= last:",
        mode("assisted_greedy"),
    ),
    Removal(
        "assistant with other tokens and as many: a stream of its own",
        "session/tracker.py",
        "deque(maxlen=2)",
        "deque(maxlen=1)",
        f"{SEAM}::test_assistant_with_the_same_width_and_other_tokens",
    ),
    Removal(
        "assistant with another tokenizer: its width passes",
        "hf/logits_processor.py",
        "            if not _an_assistant_drafts():\n                raise\n",
        "            raise\n",
        mode("foreign_assistant_greedy"),
    ),
    Removal(
        "a guide of another width: refused",
        "hf/logits_processor.py",
        "            if not _an_assistant_drafts():\n                raise\n",
        "",
        f"{SEAM}::test_a_guide_from_before_a_resize_writes_no_token",
    ),
    Removal(
        "prompt lookup: the shared scores are never written",
        "session/apply.py",
        'masked = torch.empty(scores.shape, dtype=scores.dtype, device="cpu")',
        "masked = scores.detach()",
        f"{MODES}::test_scores_handed_in_are_never_written",
    ),
    Removal(
        "prompt lookup: verified past rejected drafts",
        "session/tracker.py",
        "known = max(ids.shape[1] - 1, self.prompt_length)",
        "known = self._ids.shape[1]",
        f"{MODES}::test_same_tokens_as_plain_greedy[prompt_lookup-schema]",
    ),
    Removal(
        "output_logits stay raw",
        "session/apply.py",
        'masked = torch.empty(scores.shape, dtype=scores.dtype, device="cpu")',
        "masked = scores.detach()",
        f"{MODES}::test_logits_stay_raw_and_scores_are_their_own",
    ),
    Removal(
        "encoder-decoder: start tokens are no output",
        "session/tracker.py",
        "        self.prompt_length = prompt.shape[1]\n",
        "        self.prompt_length = 0\n",
        f"{MODES}::test_assisted_encoder_decoder_gives_the_same_tokens[schema]",
    ),
    Removal(
        "encoder-decoder: hg.generate cuts off the decoder's prompt",
        "generation/run.py",
        "self._call.seam.prompt_length or self._start",
        'self._inputs["input_ids"].shape[1]',
        f"{SEAM}::test_model_that_encodes_and_decodes",
    ),
    Removal(
        "left padding: hg.generate pads a decoder's prompts left",
        "generation/prompts.py",
        "slice(0, len(ids)) if model.config.is_encoder_decoder else slice(longest - len(ids), longest)",
        "slice(0, len(ids))",
        f"{SEAM}::test_prompts_of_different_lengths_are_padded_left",
    ),
    Removal(
        "free rows come back as they were",
        "session/apply.py",
        "            target[i] = source[i]\n",
        "            target[i] = 0\n",
        mode("constraint_per_prompt"),
    ),
    Removal(
        "reuse: a prompt after an ended output is a new one",
        "session/tracker.py",
        "        if not all(row.takes(new) for row, new in zip(self.rows, news, strict=True)):\n",
        "        if False:\n",
        mode("reused_processor"),
    ),
    Removal(
        "reuse: a prompt that the grammar of an open row refuses is a new one",
        "session/row.py",
        "(self.is_open or self.matcher is None) and self.num_taken(token_ids) == len(token_ids)",
        "self.is_open or self.matcher is None",
        f"{MODES}::test_second_prompt_that_extends_an_unfinished_output",
    ),
    Removal(
        "reset() forgets the rows",
        "session/tracker.py",
        "        self._streams.clear()\n",
        "        pass\n",
        f"{SEAM}::test_reset_begins_anew_whatever_the_tokens_are",
    ),
    Removal(
        "prefix: the matcher has taken it",
        "session/requests.py",
        "    for taken, token_id in enumerate(token_ids):\n",
        "    for taken, token_id in enumerate(token_ids[:0]):\n",
        mode("prefix"),
    ),
    Removal(
        "padded logits: columns after the vocabulary are forbidden",
        "backends/matcher.py",
        "                words[:covered] &= tokens.text_words\n                words[covered:] = 0\n",
        "",
        "tests/unit/test_backends_base.py",
    ),
    Removal(
        "bfloat16: its own bits of -inf",
        "session/apply.py",
        "neg_inf = _neg_inf_bits(scores.dtype)",
        "neg_inf = _neg_inf_bits(torch.float16 if as_int == torch.int16 else scores.dtype)",
        "tests/property/test_masking.py::test_apply_equals_the_reference",
    ),
    Removal(
        "inputs_embeds: input_ids are empty at the start",
        "session/tracker.py",
        "        self.prompt_length = prompt.shape[1]\n",
        "        self.prompt_length = max(prompt.shape[1], 1)\n",
        mode("inputs_embeds"),
    ),
    Removal(
        "vision-language: the width of the text model's logits",
        "hf/compat.py",
        '    if hasattr(config, "get_text_config"):\n        config = config.get_text_config()\n',
        "",
        f"{MODES}::test_vision_language_model",
    ),
    Removal(
        "eos_token_id per call",
        "session/session.py",
        "self.stop_token_ids = vocabulary.stop_token_ids if given is None else vocabulary.stops_with_logits(given)",
        "self.stop_token_ids = vocabulary.stop_token_ids",
        mode("stops_given_per_call"),
    ),
    Removal(
        "all stop tokens of the generation config",
        "guide.py",
        "stop_token_ids=(*known, *stop_token_ids)",
        "stop_token_ids=stop_token_ids",
        mode("several_stops"),
    ),
    Removal(
        "a stop token that generate() does not stop at is followed by the others",
        "session/masks.py",
        "        if row.state is RowState.STOPPED and row.tail:\n",
        "        if False:\n",
        mode("stops_without_the_tokenizers"),
    ),
    Removal(
        "after the end only stop tokens",
        "backends/matcher.py",
        "            if self._stops:\n                words[:] = 0\n            elif self._copies_masks:",
        "            if self._copies_masks:",
        "tests/property/test_matcher_laws.py::test_masks_never_allow_special_tokens_and_stop_tokens_only_at_the_end",
    ),
    Removal(
        "a forced token closes its row alone",
        "session/masks.py",
        "        return self._stop_words\n",
        "        return np.full_like(self._stop_words, -1)\n",
        f"{BAD}::test_forced_token_closes_that_row_alone",
    ),
    Removal(
        'on_violation="raise"',
        "session/session.py",
        "        if not self._raise_on_violation:\n            return\n",
        "        return\n",
        f"{BAD}::test_forced_token_is_an_error_that_says_everything",
    ),
    Removal(
        "an empty intersection is an error",
        "session/masks.py",
        "            elif not alive[position] and position not in masks.ended:\n",
        "            elif False:\n",
        f"{BAD}::test_other_processors_leave_nothing",
    ),
    Removal(
        "a closed row that may not stop is no NaN",
        "session/masks.py",
        "masked[position, token_id] = FALLBACK_SCORE",
        "            pass",
        f"{BAD}::test_a_closed_row_that_may_not_end_yet_spoils_nobody[sampling]",
    ),
    Removal(
        "hg.generate looks at the settings beforehand",
        "hf/generation_settings.py",
        "        governed = [constraint for constraint in compiled if constraint is not None]\n",
        "        return\n        governed = []\n",
        f"{BAD}::test_hg_generate_looks_at_the_settings_beforehand",
    ),
    Removal(
        "hg.generate takes one prompt at a time where transformers wants that",
        "generation/plan.py",
        " else 1 if settings.one_at_a_time else options.batch_size",
        " else options.batch_size",
        f"{SEAM}::test_modes_for_one_prompt_take_lists",
    ),
    Removal(
        "the model's width is checked when the Guide is made",
        "vocabulary/tokens.py",
        "        if missing:\n",
        "        if False:\n",
        f"{BAD}::test_logits_narrower_than_the_vocabulary",
    ),
    Removal(
        "an engine that gives up ends its row alone",
        "session/row.py",
        "        except HFGuidedError as error:\n            if limit_ends",
        "        except ZeroDivisionError as error:\n            if limit_ends",
        f"{BAD}::test_an_engine_that_gives_up_ends_its_row_alone",
    ),
    Removal(
        "compiling overlaps: the processor is there at once",
        "session/session.py",
        "dtype=np.int64)  # of the current call, for messages\n",
        "dtype=np.int64)\n        self._prepare()\n",
        f"{SEAM}::test_processor_is_there_before_its_grammar",
    ),
    Removal(
        "budget: what was generated is taken from it",
        "session/session.py",
        "else self._limit - generated",
        "else self._limit",
        f"{BUDGET}::test_every_output_closes_in_time[sampling-1.0-never_ends]",
    ),
    Removal(
        "budget: too few from the start are an error",
        "session/requests.py",
        "if is_enough is False:",
        "if False:",
        f"{BUDGET}::test_too_few_tokens_are_an_error_that_says_how_many_are_enough",
    ),
    Removal(
        "budget: the token that is chosen counts",
        "automaton/frame_machine.py",
        "record(tokens_left - 1, 0)",
        "record(tokens_left, 0)",
        f"{BUDGET}::test_every_output_closes_in_time[sampling-1.0-never_ends]",
    ),
    Removal(
        "budget: max_length counts the prompt",
        "hf/generation_settings.py",
        "given = longest - input_length",
        "given = longest",
        f"{BUDGET}::test_a_maximal_length_is_a_budget_too",
    ),
    Removal(
        "overlap: a step that was foreseen in vain is taken back",
        "session/session.py",
        "                expected.step.undo()\n",
        "                pass\n",
        WITH_LOOKAHEAD,
    ),
    Removal(
        "overlap: masks foreseen for other ids are not used",
        "session/session.py",
        "            if expected.is_for(input_ids):\n",
        "            if True:\n",
        WITH_LOOKAHEAD,
    ),
    Removal(
        "overlap: a dead end outlives a step that is taken back",
        "session/row.py",
        "        self.failure, self._dead_end = mark.failure, mark.dead_end\n",
        "",
        f"{LOOKAHEAD}::test_row_at_a_dead_end_stays_closed_after_a_rollback",
    ),
    Removal(
        "overlap: reset() forgets what was foreseen",
        "session/session.py",
        "        self._settle()\n        self._tracker.reset()\n",
        "        self._tracker.reset()\n",
        f"{LOOKAHEAD}::test_reset_discards_the_lookahead",
    ),
    Removal(
        "overlap: a job given up on keeps its slots",
        "session/session.py",
        "                self._filler = self._filler.with_new_buffers()\n",
        "",
        f"{LOOKAHEAD}::test_next_call_works_after_control_c",
    ),
    Removal(
        "overlap: a slot is written when its copy is done",
        "session/transfers.py",
        "            transfer.synchronize()\n",
        "",
        "tests/unit/test_transfers.py::test_buffer_is_not_overwritten_before_its_copy_is_done",
    ),
    Removal(
        "overlap: free rows cost no copy",
        "session/masks.py",
        "self._buffers.send(own) if own else None",
        "self._buffers.send(range(len(slots)))",
        f"{LOOKAHEAD}::test_late_copies_do_not_change_the_masks",
    ),
    Removal(
        "overlap: who wants a job that is not begun does it",
        "session/run_ahead.py",
        "        self.run()\n        start = time",
        "        start = time",
        f"{WORKER}::test_result_runs_a_job_that_has_not_started_in_the_calling_thread",
    ),
    Removal(
        "overlap: a forked child has a worker of its own",
        "session/run_ahead.py",
        "lost = sys.is_finalizing() or not self._owner",
        "lost = sys.is_finalizing() and not self._owner",
        f"{WORKER}::test_forked_child_starts_its_own_worker",
    ),
    Removal(
        "overlap: hg.generate passes the companion",
        "generation/guided_call.py",
        "            criteria.append(self.seam.companion)\n",
        "            pass\n",
        "tests/integration/test_lookahead.py::test_hg_generate_brings_the_companion_to_the_plain_loop",
    ),
    Removal(
        "overlap: the pipeline passes the companion",
        "generation/guided_call.py",
        "            criteria.append(self.seam.companion)\n",
        "            pass\n",
        "tests/integration/test_lookahead.py::test_the_pipeline_brings_the_companion",
    ),
    Removal(
        "prefill: what is forced at once is read with the prompts",
        "hf/decode/loop.py",
        "ready = text_too and session.compiled and self.slots.prompt_can_grow",
        "ready = False",
        f"{DECODER}::test_what_is_forced_at_once_is_read_with_the_prompts[llama-1]",
    ),
    Removal(
        "prefill: no more of it than all rows have",
        "hf/decode/loop.py",
        "width = min(",
        "width = max(",
        f"{DECODER}::test_what_is_forced_at_once_is_read_with_the_prompts[llama-3]",
    ),
    Removal(
        "prefill: what was read is not read again",
        "hf/decode/loop.py",
        "        sequence.unfed -= width\n",
        "        pass\n",
        f"{DECODER}::test_what_is_forced_at_once_is_read_with_the_prompts[llama-1]",
    ),
    Removal(
        "prefill: an encoder's prompt does not grow",
        "hf/decode/cache_slots.py",
        "            and not self._model.config.is_encoder_decoder\n",
        "",
        f"{DECODER}::test_what_is_forced_at_once_is_read_with_the_prompts[t5-1]",
    ),
    Removal(
        "jumps: forced text is appended",
        "hf/decode/sequences.py",
        "    if forced_text is not None and not sequence.finished:\n",
        "    if False:\n",
        f"{DECODER}::test_jumps_write_what_one_forward_a_token_writes[llama-1]",
    ),
    Removal(
        "jumps: a token that gives way to another is taken back",
        "hf/decode/sequences.py",
        "            del sequence.token_ids[-forced.taken_back :]\n",
        "            pass\n",
        f"{ARGUMENTS}::test_retokenized_text_is_what_the_tokenizer_writes",
    ),
    Removal(
        "jumps: a budget counts what was generated",
        "hf/decode/sequences.py",
        "left, stats = session.tokens_left(sequence.num_generated), session.stats",
        "left, stats = session.tokens_left(0), session.stats",
        f"{ARGUMENTS}::test_what_was_generated_is_taken_from_the_budget_of_forced_text",
    ),
    Removal(
        "forced text: the end is left where a token may go on over it",
        "hf/decode/forced_text.py",
        "if joined and len(joined) * _RARE >= len(next_bytes):",
        "if False:",
        f"{FORCED}::test_brace_is_not_forced_if_a_token_joins_it_with_a_quote",
    ),
    Removal(
        "forced text: it ends where later text could change its tokens",
        "hf/decode/forced_text.py",
        "for byte in sorted(byte for byte in joining if byte < 0x80)[:_TRIED]:",
        "for byte in ():",
        f"{FORCED}::test_forced_tokens_equal_those_of_the_tokenizer",
    ),
    Removal(
        "forced text: a character is forced whole or not at all",
        "hf/decode/forced_text.py",
        "data = _whole_characters(row.jump_forward_bytes())",
        "data = row.jump_forward_bytes()",
        f"{FORCED}::test_forced_tokens_equal_those_of_the_tokenizer",
    ),
    Removal(
        "forced text: what stands in front may begin inside a character",
        "vocabulary/retokenize.py",
        "        context = context[_inside_a_character(context) :]\n",
        "",
        f"{CONTINUATION}::test_context_may_begin_inside_a_character",
    ),
    Removal(
        "forced text: a budget is kept",
        "hf/decode/forced_text.py",
        "if bound and row.can_finish_in(",
        "if False and row.can_finish_in(",
        f"{FORCED}::test_forced_text_stays_within_the_budget[0]",
    ),
    Removal(
        "forced text: a stop token that must come is written",
        "hf/decode/forced_text.py",
        "bool(data) == bool(forced.token_ids) and self._must_stop(row):",
        "False:",
        f"{FORCED}::test_only_possible_text_is_forced_completely[demo]",
    ),
    Removal(
        "forced text: a row comes back from its draft",
        "hf/decode/forced_text.py",
        "        row.return_to(start)  # a refused token has closed it\n",
        "",
        f"{DRAFTED}::test_greedy_text_is_the_same[llama-1-oracle]",
    ),
    Removal(
        "continuation: the tokens in front count",
        "vocabulary/retokenize.py",
        "        token_ids = self._cut(context, data)\n",
        "        token_ids = None\n",
        f"{CONTINUATION}::test_pairs_have_the_tokens_of_the_whole_text[demo]",
    ),
    Removal(
        "continuation: exactly these bytes",
        "vocabulary/retokenize.py",
        "return cut if self._vocabulary.decode_bytes(cut) == data else None",
        "return cut",
        f"{CONTINUATION}::test_tokenizer_that_changes_letters_writes_exactly_its_bytes",
    ),
    Removal(
        "continuation: bytes without a token of their own",
        "vocabulary/retokenize.py",
        "return frozenset((*their_bytes[alone].tolist(), *others))",
        "return frozenset(their_bytes[alone].tolist())",
        f"{CONTINUATION}::test_leading_bytes_equal_those_of_the_allowed_tokens",
    ),
    Removal(
        "drafts: none after the last position",
        "hf/decode/draft_blocks.py",
        "strict=True) if end < room\n",
        "strict=True)\n",
        f"{DRAFTED}::test_nothing_is_guessed_behind_the_last_position",
    ),
    Removal(
        "guesses: tokens of another vocabulary are refused",
        "hf/decode/draft_blocks.py",
        "if any(not 0 <= token_id < width for token_id in tokens):",
        "if False:",
        f"{ARGUMENTS}::test_drafts_from_another_vocabulary_are_refused",
    ),
    Removal(
        "guesses: none beside processors that remember",
        "hf/decode/loop.py",
        "and not self._one_each and self._scoring.takes_drafts\n",
        "and not self._one_each\n",
        f"{DRAFTED}::test_processors_that_remember_see_what_the_plain_loop_shows_them",
    ),
    Removal(
        "drafts: rejected tokens leave the cache",
        "hf/decode/loop.py",
        "            self.slots.forget(surplus)\n",
        "            pass\n",
        f"{DRAFTED}::test_greedy_text_is_the_same[llama-3-oracle]",
    ),
    Removal(
        "drafts: rejected tokens of one row alone are holes",
        "hf/decode/cache_slots.py",
        "                self._mask[i, self._num_slots - (number - least) :] = 0\n",
        "                pass\n",
        f"{DRAFTED}::test_greedy_text_is_the_same[llama-3-oracle]",
    ),
    Removal(
        "acceptance: a greedy draft has to be the best token",
        "hf/drafts/verify.py",
        "if token_id != best[start + j]), len(draft))",
        "if False), len(draft))",
        f"{VERIFY}::test_greedy_equals_decoding_token_by_token[0]",
    ),
    Removal(
        "acceptance: what falls is replaced from what is left over",
        "hf/drafts/verify.py",
        "        left[rows] = _residual(left[rows], q_rejected)\n",
        "        pass\n",
        f"{VERIFY}::test_first_token_is_a_sample_of_p",
    ),
    Removal(
        "acceptance: by the probability it was drafted with",
        "hf/drafts/verify.py",
        "            q_drafted[span] = q.gather(1, drafted[span, None]).flatten().to(p.dtype)\n",
        "            pass\n",
        f"{VERIFY}::test_first_token_is_a_sample_of_p",
    ),
    Removal(
        "tool calls: JSON does not hold what ends its call",
        "constraints/tool_formats.py",
        "    _keep_ends_out(root, ())\n",
        "",
        f"{READING}::test_json_escapes_the_end_marker_of_the_argument",
    ),
    Removal(
        "tool calls: JSON does not hold what ends its element",
        "backends/tag_network.py",
        'marks = excludes if style == "json" else STYLES[style].marks',
        "marks = excludes",
        f"{READING}::test_json_escapes_the_end_marker_of_the_argument",
    ),
    Removal(
        "tool calls: a long string has room for the rest of its mark",
        "automaton/counted_string.py",
        "owed[target] + int(begins[state])",
        "owed[target]",
        "tests/property/test_tag_network.py::test_a_string_has_room_for_the_rest_of_its_mark",
    ),
    Removal(
        "tool calls: strings without quotes keep those they have",
        "constraints/tool_xml.py",
        " and not isinstance(reading[0], str)",
        "",
        f"{READING}::test_string_argument_keeps_its_quotes",
    ),
    Removal(
        "continuous batching: the mask itself",
        "hf/continuous_batching/request_masks.py",
        "            return self._kernel(scores, shared, slots, self._own, self._stops)[0]\n",
        "            return scores\n",
        f"{BATCHING}::test_return_sequences_are_independent",
    ),
    Removal(
        "continuous batching: a row takes all of its request's output",
        "hf/continuous_batching/compat.py",
        "        return list(state.generated_tokens[taken - in_prompt :])\n    return [*state.initial_tokens"
        "[state._true_initial_tokens + taken :], *state.generated_tokens]\n",
        "        return list(state.generated_tokens[taken - in_prompt :])\n    return [*state.generated_tokens]\n",
        f"{BATCHING}::test_the_tokens_stay_when_requests_give_back_their_cache_and_begin_anew",
    ),
    Removal(
        "continuous batching: rows go away with their requests",
        "hf/continuous_batching/request_masks.py",
        "                    del rows[request_id]\n",
        "                    pass\n",
        f"{BATCHING}::test_a_cancelled_request_leaves_nothing_behind",
    ),
    Removal(
        "an engine's exception is an error of this package",
        "backends/base.py",
        'raise BackendError(f"the engine {self.backend} failed: {cause(error)}") from error',
        "raise error",
        "tests/integration/test_fault_matrix.py::test_a_matcher_raises_only_errors_of_this_package",
    ),
    Removal(
        "a row that is rewound to before a failure makes a new engine",
        "session/row.py",
        "            self._use(self.matcher.compiled.matcher(self.matcher.stop_token_ids))\n",
        "            raise BackendError('lost')\n",
        f"{LOOKAHEAD}::test_engine_error_counts_only_for_the_ids_that_cause_it",
    ),
    Removal(
        "continuous batching: a request that goes wrong may stop",
        "hf/continuous_batching/request_masks.py",
        "        self._host.numpy()[index] = self.vocabulary.bitmask_of(stops)\n",
        "",
        f"{BATCHING}::test_an_engine_that_fails_ends_its_own_request_alone",
    ),
    Removal(
        "continuous batching: what is compiled stays in its process",
        "hf/continuous_batching/request_masks.py",
        "    def __reduce__(self)",
        "    def _not_reduced(self)",
        f"{BATCHING}::test_what_travels_to_other_processes_is_the_constraint_alone",
    ),
    Removal(
        "continuous batching: a row is made where none came along",
        "hf/continuous_batching/request_masks.py",
        "request.first_row(self._new_session) if request.row is None else request.row.fork()",
        "request.row.fork()",
        f"{BATCHING}::test_what_travels_to_other_processes_is_the_constraint_alone",
    ),
    Removal(
        "continuous batching: return sequences have rows of their own",
        "hf/continuous_batching/request_masks.py",
        "request.row.fork()",
        "request.row",
        f"{BATCHING}::test_return_sequences_are_independent",
    ),
    Removal(
        "continuous batching: texts close within their tokens",
        "hf/continuous_batching/compat.py",
        "    return None if state.max_new_tokens is None else state.max_new_tokens - len(state.generated_tokens)\n",
        "    return None\n",
        f"{BATCHING}::test_each_request_gets_the_tokens_that_it_gets_alone[demo]",
    ),
    Removal(
        "continuous batching: batches wait for the tokens of the last",
        "hf/continuous_batching/compat.py",
        "        config.use_async_batching = False\n",
        "        pass\n",
        f"{BATCHING}::test_batches_are_prepared_behind_the_tokens_of_the_last",
    ),
    Removal(
        "continuous batching: generate_batch drops no constraint",
        "hf/continuous_batching/attach.py",
        "        manager.model.generate_batch = partial(_generate_batch, manager.model.generate_batch)\n",
        "        pass\n",
        f"{BATCHING}::test_generate_batch_refuses_what_it_would_drop",
    ),
    Removal(
        "trace: accepted drafts are reported",
        "hf/decode/loop.py",
        "for n, token_id in enumerate([*draft.firsts[:agreed], bonus]):",
        "for n, token_id in [(agreed, bonus)]:",
        f"{TRACE}::test_a_loop_of_ours[1-drafts]",
    ),
    Removal(
        "trace: rows have several lines of scores",
        "hf/decode/loop.py",
        "            first += len(draft.ends)\n        self._take(chosen)\n",
        "            first += 1\n        self._take(chosen)\n",
        f"{TRACE}::test_a_loop_of_ours[3-drafts]",
    ),
    Removal(
        "trace: forced text may take a chosen token's place",
        "trace/recorder.py",
        "noted if noted is not None and noted.token_id == token_id",
        "noted if noted is not None",
        f"{TRACE}::test_a_token_that_gave_way_to_forced_text_was_not_chosen",
    ),
    Removal(
        "trace: looks of another constraint's row are not taken",
        "trace/recorder.py",
        "            group = position * groups // len(ids)\n",
        "            group = 0\n",
        f"{TRACE}::test_rows_of_a_batch_in_a_loop_of_transformers",
    ),
    Removal(
        "trace: what was chosen last is read off the output",
        "trace/recorder.py",
        "        self._resolve(ids, group)\n        tokens = []\n",
        "        tokens = []\n",
        f"{TRACE}::test_loops_of_transformers[greedy]",
    ),
    Removal(
        "trace: text stays text",
        "trace/page.py",
        'for character in "<>&"}',
        'for character in ""}',
        f"{TRACE_PAGE}::test_text_stays_text",
    ),
    Removal(
        "trace: the keyboard shows what pointing shows",
        "trace/page.js",
        "      spans[to].focus();\n",
        "",
        f"{TRACE_PAGE}::test_pointing_and_the_keyboard_say_why_others_were_forbidden",
    ),
    Removal(
        "streaming: a reader that has gone ends the call",
        "generation/streaming.py",
        "        self._closing.check()\n        self._queue.put(lambda rows: rows.on_tokens(row, token_ids))",
        "        self._queue.put(lambda rows: rows.on_tokens(row, token_ids))",
        f"{STREAMING}::test_leaving_early_ends_the_call_within_a_step[close-fast]",
    ),
    Removal(
        "streaming: what is left of a cut character, and a number at the end",
        "generation/partial.py",
        "        self._closed += self._values.end(result)\n",
        "        self._values.end(result)\n",
        f"{STREAMING}::test_random_runs[0]",
    ),
    Removal(
        "cancelling: a listener ends our loops",
        "generation/run.py",
        "            listener = CancelledListener(plan.cancellation)\n",
        "            pass\n",
        f"{ASYNC}::test_a_cancelled_task_ends_its_generation_at_the_next_token[fast]",
    ),
    Removal(
        "cancelling: a processor ends the loops of transformers",
        "generation/run.py",
        "[CancelledProcessor(self._plan.cancellation), *given]",
        "[*given]",
        f"{ASYNC}::test_a_cancelled_task_ends_its_generation_at_the_next_token[beams]",
    ),
    Removal(
        "cancelling: the manager of continuous batching is stopped",
        "generation/continuous.py",
        "            cancellation.check()\n",
        "            pass\n",
        f"{ASYNC}::test_cancelling_ends_continuous_batching",
    ),
    Removal(
        "cancelling: the task waits until the model is free",
        "generation/threads.py",
        "        while not ended.done():\n",
        "        while False:\n",
        f"{ASYNC}::test_a_cancelled_task_ends_its_generation_at_the_next_token[fast]",
    ),
    Removal(
        "cancelling: a call that waits for its turn never begins",
        "generation/threads.py",
        "        future.cancel()\n",
        "        pass\n",
        f"{ASYNC}::test_a_cancelled_call_does_not_disturb_those_that_wait",
    ),
    Removal(
        "asynchronous calls on one model run one after another",
        "generation/threads.py",
        "            return _turns.setdefault(innermost, Turns())\n",
        "            return Turns()\n",
        f"{ASYNC}::test_calls_on_one_model_run_one_after_another",
    ),
    Removal(
        "unknown arguments are refused",
        "generation/arguments.py",
        "    if not unknown:\n        return\n",
        "    return\n",
        f"{UNKNOWN}::test_unknown_argument_is_refused_before_anything_runs[bach_size-3-batch_size]",
    ),
    Removal(
        "partial models: hooks of the model do not see half a value",
        "generation/partial_values.py",
        "__base__=(_NoHooks, model)",
        "__base__=model",
        f"{PARTIAL_MODELS}::test_set_fields_have_their_final_values[1]",
    ),
    Removal(
        "results as HTML: what a model writes stays text",
        "session/result_html.py",
        "html.escape(visible)",
        "visible",
        f"{RESULT_HTML}::test_hostile_text_is_shown_as_text",
    ),
    Removal(
        "streaming: garbage may be collected on the worker",
        "generation/streaming.py",
        "        if current_thread() is reader:\n            worker.join()\n",
        "        worker.join()\n",
        f"{STREAMING}::test_a_stream_may_be_collected_on_its_own_worker[fast]",
    ),
    Removal(
        "streaming: the worker runs as its reader would",
        "generation/threads.py",
        "        stack.enter_context(torch.inference_mode(inference))\n",
        "",
        f"{STREAMING}::test_the_model_runs_as_it_would_here[inference_mode]",
    ),
    Removal(
        "streaming: the prefix is a part of the value",
        "generation/partial.py",
        '        self._add(b"", reader.prefix)\n',
        "",
        f"{STREAMING}::test_random_runs[0]",
    ),
    Removal(
        "streaming: padding after a stop token is not in the answer",
        "hf/listening.py",
        "self._open[row] = not ended and self._stops.isdisjoint(token_ids)",
        "self._open[row] = not ended",
        f"{STREAMING}::test_random_runs[0]",
    ),
    Removal(
        "streaming: a comma is followed by a value",
        "generation/partial_values.py",
        "self._next not in (_Next.FIRST, _Next.AFTER_VALUE)",
        "self._next is _Next.COLON",
        f"{PARTIAL_JSON}::test_short_texts_close_where_json_ends",
    ),
    Removal(
        "streaming: an escape may be cut in the middle",
        "generation/partial_values.py",
        r"*(?:\\.[^",
        r"*(?:\\.?[^",
        f"{PARTIAL_JSON}::test_escapes_may_be_cut_anywhere",
    ),
    Removal(
        "seeds: return sequences have seeds of their own",
        "generation/run.py",
        "row_seed(plan.seeds[i], copy, attempt)",
        "row_seed(plan.seeds[i], 0, attempt)",
        f"{SEEDS}::test_hg_generate_draws_the_same_in_any_batches",
    ),
    Removal(
        "seeds: a retry has a seed of its own",
        "generation/run.py",
        "row_seed(plan.seeds[i], copy, attempt)",
        "row_seed(plan.seeds[i], copy, 0)",
        f"{SEEDS}::test_a_retry_draws_anew",
    ),
    Removal(
        "seeds: drafts draw where they stand",
        "hf/decode/loop.py",
        "[self._sequences[i].num_generated + end for end in draft.ends]",
        "[self._sequences[i].num_generated for end in draft.ends]",
        f"{SEEDS}::test_drafts_change_nothing",
    ),
    Removal(
        "tensor parallel: random numbers go on alike",
        "session/tensor_parallel.py",
        "            set_random_state(state, like.device)\n",
        "",
        f"{SPREAD}::test_random_numbers_go_on_alike",
    ),
    Removal(
        "tensor parallel: the ranks stay in step after the fast loop",
        "hf/decode/rank_zero_slots.py",
        "            set_random_state(state, slots.device)\n",
        "",
        f"{SPREAD}::test_random_numbers_go_on_alike",
    ),
    Removal(
        "tensor parallel: the decoder asks whether the prompts are the same",
        "hf/decode/rank_zero_slots.py",
        "    ranks.agreed(call.input_ids.tolist, repr)\n",
        "    pass\n",
        f"{SPREAD}::test_errors_reach_both",
    ),
    Removal(
        "batch: the rows are never written over",
        "cli/batch/run.py",
        "    parts.check_apart(source)\n",
        "",
        f"{BATCH}::test_mistakes_are_said_and_nothing_is_lost",
    ),
    Removal(
        "batch: an incomplete line is not an answer",
        "cli/batch/parts.py",
        ' and line.endswith(b"\\n")',
        "",
        f"{PARTS}::test_job_resumes_from_a_truncated_file",
    ),
    Removal(
        "batch: prompts end in front of the last position",
        "generation/row_answers.py",
        "            most = min(most, int(self._positions) - length)\n",
        "",
        f"{BATCH}::test_hostile_rows_end_no_job",
    ),
    Removal(
        "batch: a chat is rendered once",
        "generation/row_answers.py",
        "replace(prompt, tokens=tokens)",
        "prompt",
        f"{BATCH}::test_the_chat_of_a_row_is_rendered_once",
    ),
    Removal(
        "batch: each row draws with a seed of its own",
        "generation/row_answers.py",
        "row_seed(self._settings.seed, row)",
        "self._settings.seed",
        f"{BATCH}::test_rows_are_answered_in_order_and_with_their_own_seeds",
    ),
    Removal(
        "server: what may begin a call is held back",
        "constraints/tool_calls.py",
        'len(text) - max(begun(text, mark) for mark in root["triggers"])',
        "len(text)",
        f"{SERVED}::test_parts_come_as_soon_as_they_are_decided",
    ),
    Removal(
        "server: what may be the end of thinking is held back",
        "session/reasoning.py",
        "        held = begun(thinking, self._end)\n",
        "        held = 0\n",
        f"{SERVED}::test_parts_come_as_soon_as_they_are_decided",
    ),
    Removal(
        "server: what may be the beginning of a stop string is held back",
        "serve/answers/parts.py",
        "max((begun(data, stop) for stop in self._stops), default=0)",
        "0",
        f"{SERVED}::test_a_stop_string_is_held_back_and_no_longer",
    ),
    Removal(
        "server: a client never holds all threads that compile",
        "serve/guidance.py",
        "self._running[client] < self._threads - 1",
        "True",
        "tests/unit/test_compile_queue.py::test_one_client_leaves_a_thread_to_the_others",
    ),
]


def cells(file: str, test: str) -> list[str]:
    """The ids of a test's cells that removals name: the default run has them."""
    named = [removal.test.removeprefix(f"{file}::{test}[") for removal in REMOVALS]
    return sorted({one[:-1] for one in named if one.endswith("]") and "::" not in one})


def survives(removal: Removal) -> str | None:
    """Why the removal went unnoticed; None if the test passes as things are, and fails without this."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("hf_guided", "tests", "notebooks"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        file = tree / "hf_guided" / removal.file
        text = file.read_text()
        if text.count(removal.old) != 1:
            return (
                f"{removal.file} holds what it takes away {text.count(removal.old)} times; bring the removal up to date"
            )
        for contents, wanted in ((text, PASSED), (text.replace(removal.old, removal.new), FAILED)):
            file.write_text(contents)
            done = run(removal.test, tree)
            if done.returncode != wanted:
                return f"{removal.test}: exit status {done.returncode}, not {wanted}\n{done.stdout}"
    return None


def run(test: str, tree: Path) -> subprocess.CompletedProcess[str]:
    """One test on a copy of the tree, as the default run has it: that run alone catches every removal."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def main(wanted: list[str]) -> int:
    chosen = [one for one in REMOVALS if not wanted or any(word in one.name for word in wanted)]
    survivors = 0
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 2)) as pool:
        for removal, why in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += why is not None
            print(f"{'SURVIVED' if why else 'caught'}  {removal.name}\n          {why or removal.test}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
