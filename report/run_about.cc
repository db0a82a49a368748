#include "report/run_about.h"

#include <nlohmann/json.hpp>

#include "base/files/json.h"

namespace trident {

using Json = nlohmann::ordered_json;

std::string about_text(const RunAbout& about) {
  Json starts = Json::array();
  for (const RunStart& start : about.starts) {
    Json& one = starts.emplace_back(Json{{"time", start.time}, {"after", start.after}});
    for (const auto& [name, value] : start.facts) one[name] = value;
    if (!start.machines.empty()) one["product_rate_of"] = start.machines;
  }
  Json document{{"starts", starts},
                {"parameters", about.parameters},
                {"predicted_memory", about.predicted_memory}};
  if (!about.best_rates.empty()) document["product_rates"] = about.best_rates;
  if (!about.sample.empty()) document["sample"] = about.sample;
  return json_text(document, 2) + "\n";
}

RunAbout about_of(const std::string& text) {
  RunAbout about;
  const Json document = ordered_json_or_null(text);
  if (!document.is_object()) return about;
  const auto at = [&](const char* key) { return document.value(key, Json()); };
  for (const Json& one : at("starts")) {
    if (!one.is_object()) continue;
    RunStart& start = about.starts.emplace_back();
    for (const auto& [name, value] : one.items()) {
      if (name == "time" && value.is_number()) {
        start.time = value.get<double>();
      } else if (name == "after" && value.is_number_integer()) {
        start.after = value.get<std::int64_t>();
      } else if (name == "product_rate_of" && value.is_object()) {
        for (const auto& [kind, count] : value.items()) {
          if (count.is_number() && count.get<double>() > 0) start.machines[kind] = count;
        }
      } else if (value.is_string()) {
        start.facts.emplace_back(name, value.get<std::string>());
      }
    }
  }
  if (at("parameters").is_number_integer()) about.parameters = at("parameters").get<std::int64_t>();
  const Json memory = at("predicted_memory");
  if (memory.is_object()) {
    for (const auto& [name, bytes] : memory.items()) {
      if (bytes.is_number_integer()) about.predicted_memory[name] = bytes.get<std::int64_t>();
    }
  }
  const Json rates = at("product_rates");
  if (rates.is_object()) {
    for (const auto& [kind, rate] : rates.items()) {
      if (rate.is_number()) raise(about.best_rates, kind, rate.get<double>());
    }
  }
  if (at("sample").is_string()) about.sample = at("sample").get<std::string>();
  return about;
}

}  // namespace trident
