#include "training/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/escape_xml.h"
#include "training/report/chart.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

constexpr const char* style =
    "body{font-family:Helvetica,Arial,sans-serif;color:#222;margin:24px;background:#fff}"
    "h1{font-size:22px}figure{display:inline-block;vertical-align:top;margin:0 18px 18px 0;"
    "padding:10px;border:1px solid #ddd;border-radius:6px}figcaption{font-weight:bold;"
    "margin-bottom:6px}figure.wide{display:block;overflow-x:auto}table{border-collapse:collapse}"
    "td{padding:2px 14px 2px 0}td:first-child{color:#666}";

std::string figure(const std::string& id, const std::string& caption, const std::string& svg,
                   bool wide = false) {
  return fmt::format("<figure id=\"{}\"{}><figcaption>{}</figcaption>{}</figure>\n", id,
                     wide ? " class=\"wide\"" : "", escape_xml(caption), svg);
}

using History = std::vector<IterationMetrics>;

template <typename Value>
Series series(const History& history, const std::string& name, Value value) {
  Series result{name, {}};
  for (const IterationMetrics& m : history) {
    result.points.emplace_back(static_cast<double>(m.iteration), value(m));
  }
  return result;
}

std::string losses(const History& history) {
  std::vector<Series> lines{
      series(history, "training", [](const IterationMetrics& m) { return m.loss; })};
  std::map<std::string, Series> sets;
  for (const IterationMetrics& m : history) {
    for (const auto& [name, loss] : m.validation_loss) {
      Series& set = sets[name];
      set.name = name.empty() ? "validation" : "validation " + name;
      set.points.emplace_back(static_cast<double>(m.iteration), loss);
    }
  }
  for (auto& [name, set] : sets) lines.push_back(std::move(set));
  return line_chart(lines, "nats a token");
}

std::string memory(const History& history, const Plan& plan) {
  const auto predicted = largest_rank(plan);
  std::vector<Bars> bars;
  for (const auto& [name, bytes] : history.back().peak_memory) {
    const auto known = predicted.find(name);
    bars.push_back({name, static_cast<double>(bytes) * 1e-6,
                    known == predicted.end() ? -1 : static_cast<double>(known->second) * 1e-6});
  }
  return bar_chart(bars, "MB of the largest rank");
}

std::string rank_bubbles(const History& history) {
  std::vector<double> sum;
  std::size_t count = 0;
  for (const IterationMetrics& m : history) {
    if (m.iteration == 1 && history.size() > 1) continue;  // still makes its buffers
    sum.resize(m.rank_bubble_ratio.size());
    for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += m.rank_bubble_ratio[r];
    ++count;
  }
  std::vector<Bars> bars;
  for (std::size_t r = 0; r < sum.size(); ++r) {
    bars.push_back({fmt::format("pipeline rank {}", r), 100 * sum[r] / static_cast<double>(count)});
  }
  return bar_chart(bars, "% of an iteration, by CPU time");
}

std::string facts(const Config& config, const Plan& plan, const History& history) {
  const auto row = [](const char* name, const std::string& value) {
    return fmt::format("<tr><td>{}</td><td>{}</td></tr>", name, escape_xml(value));
  };
  const ParallelConfig& p = config.parallel;
  std::string text = "<table>";
  text += row("model",
              fmt::format("{}, {} layers, hidden size {}, {:.4g} million parameters",
                          config.model.architecture, config.model.num_layers,
                          config.model.hidden_size, static_cast<double>(plan.parameters) * 1e-6));
  text += row("layout",
              fmt::format("{}, {} chunks a rank, ZeRO {}", titles_of(p.axes()),
                          p.virtual_pipeline_model_parallel_size, config.zero_optimization.stage));
  text += row("schedule", fmt::format("{}, {} micro-batches", schedule_name(config),
                                      config.num_microbatches()));
  text += row("precision", config.precision.dtype);
  const IterationMetrics& last = history.back();
  text += row("iterations", std::to_string(last.iteration));
  text += row("final loss", fmt::format("{:.4f}", last.loss));
  for (const auto& [name, loss] : last.validation_loss) {
    text += row("validation", fmt::format("{}{}{:.4f}", name, name.empty() ? "" : " ", loss));
  }
  return text + "</table>\n";
}

}  // namespace

std::string run_report(const Config& config, const Plan& plan, const History& history,
                       const std::vector<Timeline>& timelines) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>{1}</style></head>\n<body><h1>{0}</h1>\n",
      escape_xml("Trident run " + config.logging.dir), style);
  if (history.empty()) return html + "<p>No iteration was run.</p></body></html>\n";
  const auto of = [&](const char* name, auto value) { return series(history, name, value); };
  using M = IterationMetrics;
  html += facts(config, plan, history);
  html += figure("loss", "Loss", losses(history));
  html += figure("speed", "Speed",
                 line_chart({of("tokens/s", [](const M& m) { return m.tokens_per_second; })},
                            "tokens a second"));
  html +=
      figure("bubble", "Pipeline bubble",
             line_chart({of("by CPU time", [](const M& m) { return 100 * m.bubble_ratio; }),
                         of("by the clock", [](const M& m) { return 100 * m.bubble_ratio_wall; }),
                         of("predicted", [](const M& m) { return 100 * m.bubble_predicted; })},
                        "% of an iteration"));
  html += figure("bubble-by-rank", "Bubble of each pipeline rank", rank_bubbles(history));
  html += figure("memory", "Memory beside the plan", memory(history, plan));
  html += figure("gradient-norm", "Gradient norm",
                 line_chart({of("before clipping", [](const M& m) { return m.grad_norm; })}, ""));
  html += figure("learning-rate", "Learning rate",
                 line_chart({of("learning rate", [](const M& m) { return m.learning_rate; })}, ""));
  if (!timelines.empty()) {
    html += figure("timeline", "One iteration", timeline_svg(timelines), true);
  }
  return html + "</body></html>\n";
}

}  // namespace trident
