#include "scheduler/action.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trident {

namespace {

bool is_forward(Step step) {
  return step == Step::post_receive_forward || step == Step::wait_receive_forward ||
         step == Step::send_forward;
}

}  // namespace

bool is_send(Step step) {
  return step == Step::send_forward || step == Step::send_backward;
}

char letter(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return 'F';
    case Kind::backward:
      return 'B';
    case Kind::backward_input:
      return 'I';
    case Kind::backward_weight:
      return 'W';
  }
  return '?';
}

namespace {

void append(std::string& text, const Action& action) {
  text += fmt::format_int(action.stage).c_str();
  text += letter(action.kind);
  text += fmt::format_int(action.microbatch).c_str();
}

}  // namespace

std::string to_string(const Action& action) {
  std::string text;
  append(text, action);
  return text;
}

void append_cells(std::string& text, const std::vector<Action>& actions,
                  std::string_view separator) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (i > 0) text += separator;
    if (actions[i].fused && i + 1 < actions.size()) {
      text += '(';
      append(text, actions[i]);
      text += ';';
      append(text, actions[++i]);
      text += ")OVERLAP_F_B";
    } else {
      append(text, actions[i]);
    }
  }
}

int Schedule::rank_of_stage(int stage) const {
  // The looped placement is looked up directly; any other placement is searched.
  if (stage >= 0 && !placement.empty()) {
    const size_t rank = stage % placement.size();
    const size_t chunk = stage / placement.size();
    if (chunk < placement[rank].size() && placement[rank][chunk] == stage) {
      return static_cast<int>(rank);
    }
  }
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    const auto& held = placement[rank];
    if (std::find(held.begin(), held.end(), stage) != held.end()) return static_cast<int>(rank);
  }
  throw Error(fmt::format("schedule {}: no rank holds stage {}", kind, stage));
}

std::vector<std::vector<int>> looped_placement(int stages, int chunks) {
  std::vector<std::vector<int>> placement(stages);
  for (int rank = 0; rank < stages; ++rank) {
    for (int chunk = 0; chunk < chunks; ++chunk) placement[rank].push_back(chunk * stages + rank);
  }
  return placement;
}

std::string to_string(const LoweredAction& action) {
  const std::string served = to_string(Action{action.kind, action.stage, action.microbatch});
  if (action.step == Step::compute) return served;
  if (is_send(action.step)) return fmt::format("send of {} to rank {}", served, action.peer);
  const bool post =
      action.step == Step::post_receive_forward || action.step == Step::post_receive_backward;
  return fmt::format("{} receive for {} from rank {}", post ? "post" : "wait", served, action.peer);
}

int transfer_tag(const LoweredAction& action, int microbatches) {
  if (action.step == Step::compute) return -1;
  // The number is computed from the receiving stage, so that both ends agree.
  int receiver = action.stage;
  if (action.step == Step::send_forward) receiver += 1;
  if (action.step == Step::send_backward) receiver -= 1;
  return 2 * (receiver * microbatches + action.microbatch) + (is_forward(action.step) ? 0 : 1);
}

}  // namespace trident
