#include "report/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file.h"
#include "base/request_problems.h"
#include "report/earlier_run.h"
#include "report/run_report.h"

namespace trident {
namespace {

MetricsFile create_metrics(const std::string& directory, bool overwrite,
                           std::optional<std::int64_t> after) {
  require_output_directory(directory);
  if (after) return MetricsFile::resume(directory, *after);
  if (overwrite) remove_earlier_run(directory);
  return MetricsFile::create(directory, overwrite);
}

constexpr std::uint64_t most_about = 64 << 20;  // bytes

// The text as a code block in Markdown.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

// The numbers and words of the config that say what is trained and how, by names like
// "optimizer.params.lr".
std::map<std::string, TensorBoardWriter::Hyperparameter> hyperparameters(const Config& config) {
  const auto document = nlohmann::ordered_json::parse(config_to_json(config)).flatten();
  std::map<std::string, TensorBoardWriter::Hyperparameter> values;
  for (const auto& [path, value] : document.items()) {
    const std::string section = path.substr(1, path.find('/', 1) - 1);
    if (section == "data" || section == "checkpoint" || section == "runtime" ||
        section == "logging") {
      continue;
    }
    std::string name = path.substr(1);
    std::ranges::replace(name, '/', '.');
    if (value.is_boolean()) {
      values[name] = value.get<bool>();
    } else if (value.is_number()) {
      values[name] = value.get<double>();
    } else if (value.is_string()) {
      values[name] = value.get<std::string>();
    }
  }
  return values;
}

// One value for a layer's mean; the least and the largest of a layer's counts.
void add_statistics(const StepStatistics& all,
                    std::vector<std::pair<std::string, double>>& scalars) {
  for (const auto& [name, loss] : all.auxiliary_losses) {
    scalars.emplace_back("auxiliary_losses/" + name, loss);
  }
  for (const auto& [name, layers] : all.statistics) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const std::vector<double>& values = layers[layer];
      const std::string tag = fmt::format("statistics/{}/layer_{}", name, layer);
      if (values.size() == 1) scalars.emplace_back(tag, values[0]);
      if (values.size() < 2) continue;
      const auto [least, most] = std::ranges::minmax(values);
      scalars.emplace_back(tag + "_min", least);
      scalars.emplace_back(tag + "_max", most);
    }
  }
}

}  // namespace

RunFiles::RunFiles(const Config& config, const std::string& written, bool again,
                   std::optional<std::int64_t> after, const RunAbout& about)
    : directory_(config.logging.dir),
      metrics_(create_metrics(directory_, config.logging.overwrite || again, after)) {
  written_.push_back(metrics_.path());
  const std::string about_path = directory_ + "/run.json";
  about_ = about;
  if (after) {
    const RunAbout before = RunFiles::about(directory_);
    about_.starts.insert(about_.starts.begin(), before.starts.begin(), before.starts.end());
    about_.sample = before.sample;
    raise(about_.best_rates, before.best_rates);
    timelines_ = timelines_in(directory_);
  }
  write_file_atomic(about_path, about_text(about_));
  written_.push_back(about_path);
  write_file_atomic(directory_ + "/config.json", config_to_json(config, written));
  written_.push_back(directory_ + "/config.json");
  if (!written.empty()) {
    write_file_atomic(directory_ + "/config.user.json", written);
    written_.push_back(directory_ + "/config.user.json");
  }
  if (config.logging.tensorboard) {
    tensorboard_.emplace(directory_, after ? std::optional(*after + 1) : std::nullopt);
    written_.push_back(tensorboard_->path());
    const std::string text = written.empty() ? config_to_json(config) : written;
    tensorboard_->add_text(after.value_or(0), "config", as_code(text));
    const std::vector<std::string> compared{"train/loss", "validation/loss",
                                            "speed/tokens_per_second", "bubble/bubble_ratio"};
    tensorboard_->add_hyperparameters(hyperparameters(config), compared);
  }
}

RunAbout RunFiles::about(const std::string& directory) {
  const std::string path = directory + "/run.json";
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return {};
  return about_of(read_file(path, most_about));
}

void RunFiles::write(const IterationMetrics& m) {
  metrics_.append(metrics_line(m));

  if (!tensorboard_) return;
  std::vector<std::pair<std::string, double>> scalars{
      {"train/loss", m.loss},
      {"train/grad_norm", m.grad_norm},
      {"train/learning_rate", m.learning_rate},
      {"train/loss_scale", m.loss_scale},
      {"train/batch_size", static_cast<double>(m.batch_size)},
      {"train/epoch", m.epoch},
      {"speed/iteration_time_ms", m.iteration_time_ms},
      {"speed/tokens_per_second", m.tokens_per_second},
      {"speed/tflops", m.tflops},
      {"speed/mfu", m.mfu},
      {"bubble/bubble_ratio", m.bubble_ratio},
      {"bubble/bubble_ratio_wall", m.bubble_ratio_wall},
      {"bubble/bubble_predicted", m.bubble_predicted}};
  for (const auto& [group, bytes] : m.bytes_sent) {
    scalars.emplace_back("bytes_sent/" + group, static_cast<double>(bytes));
  }
  for (const auto& [category, bytes] : m.peak_memory) {
    scalars.emplace_back("peak_memory/" + category, static_cast<double>(bytes));
  }
  for (const auto& [part, ms] : m.parts_ms) scalars.emplace_back("parts_ms/" + part, ms);
  if (m.save_pause_ms) scalars.emplace_back("saves/save_pause_ms", *m.save_pause_ms);
  if (m.counted_tokens) {
    scalars.emplace_back("data/counted_tokens", static_cast<double>(*m.counted_tokens));
  }
  if (m.failed_saves) {
    scalars.emplace_back("saves/failed_saves", static_cast<double>(*m.failed_saves));
  }
  for (const auto& [name, loss] : m.validation_loss) {
    scalars.emplace_back(name.empty() ? "validation/loss" : "validation/" + name, loss);
  }
  add_statistics(m.statistics, scalars);
  for (const auto& [name, value] : m.extra) scalars.emplace_back(name, value);
  tensorboard_->add_scalars(m.iteration, scalars);
}

void add_to_report(const std::string& directory, const std::string& sample,
                   const BestRates& rates) {
  const std::string path = directory + "/run.json";
  RunAbout about = RunFiles::about(directory);
  if (!sample.empty()) about.sample = sample;
  raise(about.best_rates, rates);
  write_file_atomic(path, about_text(about));
  write_file_atomic(directory + "/report.html", run_report({read_run(directory)}));
}

void RunFiles::write_report(const BestRates& rates) {
  const BestRates before = about_.best_rates;
  raise(about_.best_rates, rates);
  if (about_.best_rates != before) write_file_atomic(directory_ + "/run.json", about_text(about_));
  write_file_atomic(directory_ + "/report.html", run_report({read_run(directory_)}));
  written_.push_back(directory_ + "/report.html");
}

void RunFiles::write_timeline(std::int64_t iteration, const Timeline& predicted,
                              const Timeline& measured) {
  timelines_.push_back(timeline_json(predicted));
  timelines_.push_back(timeline_json(measured));
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    write_file_atomic(path, text);
    if (std::ranges::find(written_, path) == written_.end()) written_.push_back(path);
  };
  const std::string picture = timeline_svg(std::vector<Timeline>{predicted, measured});
  const std::string trace = chrome_trace(measured);
  write("timeline.svg", picture);
  write("trace.json", trace);
  write("timeline.json", fmt::format("[{}]\n", fmt::join(timelines_, ",\n")));
  if (iteration == 0) return;
  write(fmt::format("timeline-{}.svg", iteration), picture);
  write(fmt::format("trace-{}.json", iteration), trace);
}

}  // namespace trident
