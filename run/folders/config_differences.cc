#include "run/folders/config_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"

namespace trident {
namespace {

using nlohmann::json;

// Keys of the model that do not change the saved tensors.
constexpr const char* kFreeOfModel[] = {"/model/hidden_dropout",
                                        "/model/attention_dropout",
                                        "/model/init_method_std",
                                        "/model/pad_token_id",
                                        "/model/make_vocab_size_divisible_by",
                                        "/model/mtp_loss_scaling_factor",
                                        "/model/moe/router_bias_update_rate",
                                        "/model/moe/router_load_balancing_type",
                                        "/model/moe/aux_loss_coeff",
                                        "/model/moe/z_loss_coeff",
                                        "/model/moe/expert_capacity_factor",
                                        "/model/moe/token_drop_policy"};
constexpr const char* order_pointer = "/parallel/rank_order";
constexpr const char* products_pointer = "/runtime/bf16_products";
// kUnreportedSections: sections whose differences are not reported, since they are paths, or appear
// in the line about the layout. kReportedKeys: keys in these sections that change the last digits
// of results.
constexpr const char* kUnreportedSections[] = {"/checkpoint/", "/logging/", "/parallel/",
                                               "/runtime/", "/derived"};
constexpr const char* kReportedKeys[] = {"/parallel/sequence_parallel",
                                         "/parallel/tp_comm_overlap",
                                         "/parallel/cp_comm_type",
                                         "/parallel/hierarchical_context_parallel_sizes",
                                         "/runtime/collective_algorithm",
                                         order_pointer,
                                         products_pointer};

// The axes of a rank order, as JSON, without that of context parallelism, which older programs did
// not know.
std::vector<std::string> without_context(const std::string& order) {
  std::vector<std::string> axes;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t end = std::min(order.find_first_of("-\"", begin), order.size());
    if (end > begin && order.substr(begin, end - begin) != context_axis) {
      axes.push_back(order.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return axes;
}

bool begins_with_any(const std::string& path, const auto& prefixes) {
  return std::ranges::any_of(prefixes, [&](const char* p) { return path.starts_with(p); });
}

// The saved config with this program's defaults for the keys that it lacks: the program that saved
// it may be older than these keys.
json filled_in(const std::string& saved,
               const std::shared_ptr<const ConfigConstraints>& constraints) {
  try {
    return json_or_null(
        config_to_json(parse_config(saved, {}, {.constraints = constraints}).config));
  } catch (const std::exception&) {
    return json::object();  // it has keys that no longer exist: the comparison names them
  }
}

}  // namespace

std::vector<std::string> config_differences(const std::string& saved, const Config& config,
                                            const std::string& name, bool grows) {
  const auto flat = [](const json& document) {
    std::map<std::string, std::string> values;
    const json leaves = document.flatten();
    for (const auto& [pointer, value] : leaves.items()) {
      values[pointer] = json_text(value);
    }
    return values;
  };
  auto there = flat(parse_json(saved, name));
  if (const json now = filled_in(saved, config.constraints); !now.empty()) there.merge(flat(now));
  const auto here = flat(json_or_null(config_to_json(config)));
  std::vector<std::string> problems, lines;
  auto keys = there;
  keys.insert(here.begin(), here.end());
  const auto more_entries = [&](const std::string& was) {
    return grows && was.size() <= 18 && was.find_first_not_of("0123456789") == std::string::npos &&
           std::stoll(was) < config.model.vocab_size;
  };
  for (const auto& [pointer, ignored] : keys) {
    const auto value = [&](const auto& values) {
      const auto it = values.find(pointer);
      return it == values.end() ? std::string("nothing") : it->second;
    };
    const std::string was_all = value(there), is_all = value(here);
    const bool is_written =
        begins_with_any(pointer, kReportedKeys) || !begins_with_any(pointer, kUnreportedSections);
    if (was_all == is_all || !is_written) continue;
    if (pointer == order_pointer && without_context(was_all) == without_context(is_all)) continue;
    // run/startup/bf16_products.h reports what "auto" chose.
    const auto is_auto = [](const std::string& text) { return text == "\"auto\""; };
    if (pointer == products_pointer && (is_auto(was_all) || is_auto(is_all))) continue;
    const std::string was = printable(was_all, 200), is = printable(is_all, 200);
    const bool model = pointer.starts_with("/model/") && !begins_with_any(pointer, kFreeOfModel);
    if (pointer == "/model/vocab_size" && more_entries(was_all)) {
      lines.push_back(
          fmt::format("{}: {} in the checkpoint, now {}: the added entries get initial weights",
                      pointer, was, is));
    } else if (model) {
      problems.push_back(fmt::format("config: {}: is {}, the checkpoint's model has {} ({})",
                                     pointer, is, was, name));
    } else {
      lines.push_back(fmt::format("{}: {} in the checkpoint, now {}", pointer, was, is));
    }
  }
  if (!problems.empty()) throw RequestError(problems);
  return lines;
}

}  // namespace trident
