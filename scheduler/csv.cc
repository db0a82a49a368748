#include "scheduler/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/error.h"

namespace trident {

namespace {

constexpr size_t max_problems = 20;
constexpr std::string_view pair_name = "OVERLAP_F_B";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"";
  const size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

// The parts of `text` between separators, at least one part.
std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> list;
  for (size_t end = 0; end != std::string_view::npos; text.remove_prefix(end + 1)) {
    end = text.find(separator);
    list.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return list;
}

// Parses a number at the front of `text` and removes it.
std::optional<int> number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value >= 1 << 30) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<Action> action_of(std::string_view text) {
  Action action;
  const auto stage = number(text);
  if (!stage || text.empty()) return std::nullopt;
  const char name = text.front();
  text.remove_prefix(1);
  const auto microbatch = number(text);
  if (!microbatch || !text.empty()) return std::nullopt;
  action.stage = *stage;
  action.microbatch = *microbatch;
  for (const Kind kind :
       {Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight}) {
    if (letter(kind) != name) continue;
    action.kind = kind;
    return action;
  }
  return std::nullopt;
}

// The actions of a cell; empty for a malformed cell.
std::vector<Action> actions_of(std::string_view cell) {
  if (cell.front() != '(') {
    const auto action = action_of(cell);
    return action ? std::vector<Action>{*action} : std::vector<Action>{};
  }
  const size_t close = cell.find(')');
  if (close == std::string_view::npos || cell.substr(close + 1) != pair_name) return {};
  std::vector<Action> pair;
  for (const std::string_view part : parts(cell.substr(1, close - 1), ';')) {
    const auto action = action_of(trimmed(part));
    if (!action) return {};
    pair.push_back(*action);
  }
  if (pair.size() != 2) return {};
  pair.front().fused = true;
  return pair;
}

std::string shortened(std::string_view cell) {
  std::string text(cell.substr(0, 40));
  // Control characters of the file must not reach a terminal.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text + (cell.size() > 40 ? "..." : "");
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  const auto cells = [](const std::vector<Action>& actions) {
    return std::ssize(actions) -
           std::count_if(actions.begin(), actions.end(), [](const Action& a) { return a.fused; });
  };
  std::ptrdiff_t longest = 0;
  for (const auto& actions : schedule.ranks) longest = std::max(longest, cells(actions));
  std::string text;
  for (const auto& actions : schedule.ranks) {
    append_cells(text, actions, ",");
    text.append(static_cast<size_t>(longest - cells(actions)), ',');
    text += '\n';
  }
  return text;
}

Schedule from_csv(std::string_view text, const std::string& kind) {
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);  // the byte order mark that Excel
                            // writes
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  Schedule schedule{kind, 0, 0, 0, {}, {}};
  std::vector<std::string> problems;
  const auto problem = [&](std::string found) {
    problems.push_back(std::move(found));
    if (problems.size() == max_problems) throw RequestError(problems);
  };
  for (const std::string_view line : parts(text, '\n')) {
    auto& actions = schedule.ranks.emplace_back();
    std::set<int> stages;
    size_t column = 0;
    for (const std::string_view raw : parts(line, ',')) {
      ++column;
      const std::string_view cell = trimmed(raw);
      if (cell.empty()) continue;
      const std::vector<Action> found = actions_of(cell);
      if (found.empty()) {
        problem(fmt::format(
            "row {} cell {} (\"{}\"): a cell is <stage><F, I, W or B><micro-batch>, as \"0F4\", or "
            "a pair, as \"(0F4;7B3)OVERLAP_F_B\", or empty",
            schedule.ranks.size(), column, shortened(cell)));
      }
      for (const Action& action : found) {
        stages.insert(action.stage);
        schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
        actions.push_back(action);
      }
    }
    schedule.placement.emplace_back(stages.begin(), stages.end());
  }
  schedule.stages = static_cast<int>(schedule.ranks.size());
  schedule.chunks = static_cast<int>(schedule.placement.front().size());
  for (size_t rank = 0; rank < schedule.placement.size(); ++rank) {
    const size_t held = schedule.placement[rank].size();
    if (held == 0) {
      problem(fmt::format("row {}: no action; every rank has a row with its actions", rank + 1));
    } else if (held != schedule.placement.front().size()) {
      problem(fmt::format("row {}: actions of {} stages, row 1 has {}; all ranks hold equally many",
                          rank + 1, held, schedule.placement.front().size()));
    }
  }
  if (!problems.empty()) throw RequestError(problems);
  return schedule;
}

}  // namespace trident
