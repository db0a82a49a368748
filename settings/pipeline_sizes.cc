#include "settings/pipeline_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "settings/paths.h"

namespace trident::config_detail {
namespace {

class Choices {
 public:
  Choices(const Config& config, const ScheduleConstraints* schedule, std::string_view path)
      : now_{config.parallel.pipeline_model_parallel_size,
             config.parallel.virtual_pipeline_model_parallel_size, schedule},
        layers_(config.model.num_layers),
        path_(path) {
    schedules_ = {schedule};
    if (schedule == nullptr) return;
    for (const std::string& name :
         {schedule->ungrouped, default_schedule(config.constraints->schedules, true),
          default_schedule(config.constraints->schedules, false)}) {
      const ScheduleConstraints* const kind = find_row(config.constraints->schedules, name);
      if (kind != nullptr && !std::ranges::count(schedules_, kind)) schedules_.push_back(kind);
    }
  }

  std::string text() const {
    std::vector<std::string> texts;
    for (int changes = 1; changes <= 3 && texts.empty(); ++changes) {
      for (const PipelineSizes& sizes : nearest(changes)) texts.push_back(text_of(sizes));
    }
    return texts.empty() ? "change one of them" : fmt::format("use {}", fmt::join(texts, ", or "));
  }

 private:
  int changes_of(const PipelineSizes& sizes) const {
    return (sizes.ranks != now_.ranks) + (sizes.chunks != now_.chunks) +
           (sizes.schedule != now_.schedule);
  }

  // Up to two sizes that change this number of keys, each changing other keys. Sizes that change
  // `path` come first.
  std::vector<PipelineSizes> nearest(int changes) const {
    std::vector<PipelineSizes> found;
    const auto same_keys = [&](const PipelineSizes& a, const PipelineSizes& b) {
      return (a.ranks == now_.ranks) == (b.ranks == now_.ranks) &&
             (a.chunks == now_.chunks) == (b.chunks == now_.chunks) &&
             (a.schedule == now_.schedule) == (b.schedule == now_.schedule);
    };
    const auto away = [&](const PipelineSizes& sizes) {
      return std::abs(sizes.ranks - now_.ranks) + std::abs(sizes.chunks - now_.chunks);
    };
    const std::int64_t chunks[] = {now_.chunks, now_.chunks - 1, 2, 1, layers_ / now_.ranks};
    for (const std::int64_t v : chunks) {
      if (v < 1) continue;
      for (const std::int64_t p : {now_.ranks, layers_ / v, std::int64_t{2}, std::int64_t{1}}) {
        for (const ScheduleConstraints* const kind : schedules_) {
          const PipelineSizes sizes{p, v, kind};
          if (p < 1 || p > layers_ / v || changes_of(sizes) != changes || !fit(sizes)) continue;
          const auto same = std::ranges::find_if(
              found, [&](const PipelineSizes& other) { return same_keys(sizes, other); });
          if (same == found.end()) {
            found.push_back(sizes);
          } else if (away(sizes) < away(*same)) {
            *same = sizes;
          }
        }
      }
    }
    const auto changes_path = [&](const PipelineSizes& sizes) {
      return path_ == kPipeline ? sizes.ranks != now_.ranks : sizes.chunks != now_.chunks;
    };
    std::ranges::stable_partition(found, changes_path);
    found.resize(std::min<std::size_t>(found.size(), 2));
    return found;
  }

  std::string text_of(const PipelineSizes& sizes) const {
    std::vector<std::string> keys;
    const auto add = [&](const char* path, std::string_view key, std::int64_t before,
                         std::int64_t value) {
      if (value == before) return;
      const std::string text =
          path == path_ ? fmt::format("{}", value) : fmt::format("{} {}", key, value);
      keys.insert(path == path_ ? keys.begin() : keys.end(), text);
    };
    add(kPipeline, "pipeline_model_parallel_size", now_.ranks, sizes.ranks);
    add(kChunks, "virtual_pipeline_model_parallel_size", now_.chunks, sizes.chunks);
    if (sizes.schedule != now_.schedule) {
      keys.push_back(fmt::format("schedule \"{}\"", sizes.schedule->name));
    }
    return fmt::format("{}", fmt::join(keys, " and "));
  }

  PipelineSizes now_;
  std::int64_t layers_;
  std::string_view path_;
  std::vector<const ScheduleConstraints*> schedules_;
};

}  // namespace

bool fit(const PipelineSizes& sizes) {
  if (sizes.schedule == nullptr) return true;
  const ScheduleConstraints& kind = *sizes.schedule;
  if (kind.chunks == ChunkRule::one && sizes.chunks > 1) return false;
  if (kind.chunks == ChunkRule::two && sizes.chunks != 2) return false;
  return !kind.grouped || (sizes.chunks >= 2 && sizes.ranks >= 2);
}

std::string pipeline_choices(const Config& config, const ScheduleConstraints* schedule,
                             std::string_view path) {
  return Choices(config, schedule, path).text();
}

}  // namespace trident::config_detail
