#include "training/report/run_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/request_problems.h"
#include "training/report/earlier_run.h"

namespace trident {
namespace {

MetricsFile create_metrics(const std::string& directory, bool overwrite,
                           std::optional<std::int64_t> after) {
  require_output_directory(directory);
  if (after) return MetricsFile::resume(directory, *after);
  if (overwrite) remove_earlier_run(directory);
  return MetricsFile::create(directory, overwrite);
}

nlohmann::ordered_json validation_json(const IterationMetrics& m) {
  if (m.validation_loss.size() == 1 && m.validation_loss[0].first.empty()) {
    return m.validation_loss[0].second;
  }
  nlohmann::ordered_json sets = nlohmann::ordered_json::object();
  for (const auto& [name, loss] : m.validation_loss) sets[name] = loss;
  return sets;
}

}  // namespace

RunFiles::RunFiles(const Config& config, const std::string& written, bool again,
                   std::optional<std::int64_t> after)
    : directory_(config.logging.dir),
      metrics_(create_metrics(directory_, config.logging.overwrite || again, after)) {
  written_.push_back(metrics_.path());
  write_file_atomic(directory_ + "/config.json", config_to_json(config, written));
  written_.push_back(directory_ + "/config.json");
  if (!written.empty()) {
    write_file_atomic(directory_ + "/config.user.json", written);
    written_.push_back(directory_ + "/config.user.json");
  }
  if (config.logging.tensorboard) {
    tensorboard_.emplace(directory_, after ? std::optional(*after + 1) : std::nullopt);
    written_.push_back(tensorboard_->path());
  }
}

void RunFiles::write(const IterationMetrics& m) {
  nlohmann::ordered_json line{{"iteration", m.iteration},
                              {"loss", m.loss},
                              {"grad_norm", m.grad_norm},
                              {"learning_rate", m.learning_rate},
                              {"consumed_tokens", m.consumed_tokens},
                              {"iteration_time_ms", m.iteration_time_ms},
                              {"tokens_per_second", m.tokens_per_second},
                              {"tflops", m.tflops},
                              {"mfu", m.mfu},
                              {"bubble_ratio", m.bubble_ratio},
                              {"bubble_ratio_wall", m.bubble_ratio_wall},
                              {"bubble_predicted", m.bubble_predicted},
                              {"rank_bubble_ratio", m.rank_bubble_ratio},
                              {"bytes_sent", m.bytes_sent},
                              {"peak_memory", m.peak_memory},
                              {"parts_ms", m.parts_ms},
                              {"replayed_ms", m.replayed_ms},
                              {"loss_scale", m.loss_scale},
                              {"skipped", m.skipped}};
  if (m.weight_version) line["weight_version"] = *m.weight_version;
  if (m.save_pause_ms) line["save_pause_ms"] = *m.save_pause_ms;
  if (m.failed_saves) line["failed_saves"] = *m.failed_saves;
  if (!m.validation_loss.empty()) line["validation_loss"] = validation_json(m);
  for (const auto& [name, value] : m.extra) line[name] = value;
  metrics_.append(line);

  if (!tensorboard_) return;
  std::vector<std::pair<std::string, double>> scalars{{"loss", m.loss},
                                                      {"grad_norm", m.grad_norm},
                                                      {"learning_rate", m.learning_rate},
                                                      {"iteration_time_ms", m.iteration_time_ms},
                                                      {"tokens_per_second", m.tokens_per_second},
                                                      {"tflops", m.tflops},
                                                      {"mfu", m.mfu},
                                                      {"bubble_ratio", m.bubble_ratio},
                                                      {"bubble_ratio_wall", m.bubble_ratio_wall},
                                                      {"bubble_predicted", m.bubble_predicted},
                                                      {"loss_scale", m.loss_scale}};
  for (const auto& [group, bytes] : m.bytes_sent) {
    scalars.emplace_back("bytes_sent/" + group, static_cast<double>(bytes));
  }
  for (const auto& [category, bytes] : m.peak_memory) {
    scalars.emplace_back("peak_memory/" + category, static_cast<double>(bytes));
  }
  for (const auto& [part, ms] : m.parts_ms) scalars.emplace_back("parts_ms/" + part, ms);
  if (m.save_pause_ms) scalars.emplace_back("save_pause_ms", *m.save_pause_ms);
  if (m.failed_saves) scalars.emplace_back("failed_saves", static_cast<double>(*m.failed_saves));
  for (const auto& [name, loss] : m.validation_loss) {
    scalars.emplace_back(name.empty() ? "validation_loss" : "validation_loss/" + name, loss);
  }
  for (const auto& [name, value] : m.extra) scalars.emplace_back(name, value);
  tensorboard_->add_scalars(m.iteration, scalars);
}

void RunFiles::write_report(const std::string& html) {
  write_file_atomic(directory_ + "/report.html", html);
  written_.push_back(directory_ + "/report.html");
}

void RunFiles::write_timeline(const Timeline& predicted, const Timeline& measured) {
  write_file_atomic(directory_ + "/timeline.svg",
                    timeline_svg(std::vector<Timeline>{predicted, measured}));
  write_file_atomic(directory_ + "/trace.json", chrome_trace(measured));
  written_.push_back(directory_ + "/timeline.svg");
  written_.push_back(directory_ + "/trace.json");
}

}  // namespace trident
