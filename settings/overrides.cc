// Applies the command line's overrides, "a.b=value", to a config.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "base/utf8.h"
#include "settings/fields.h"

namespace trident::config_detail {
namespace {

using nlohmann::json;

void apply_override(json& document, const std::string& text) {
  const auto fail = [&](const std::string& what) {
    throw RequestError(fmt::format("config: --set {}: {}", text, what));
  };
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) fail("must be key.key=value");
  const std::string path = text.substr(0, equals);
  const std::string value_text = text.substr(equals + 1);
  json value;
  try {
    value = parse_json(value_text, "--set");
  } catch (const RequestError&) {
    value = value_text;
  }
  if (invalid_utf8(text) != std::string::npos) {
    throw RequestError("config: --set: an override is not UTF-8");
  }

  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto dot = std::min(path.find('.', begin), path.size());
    keys.push_back(path.substr(begin, dot - begin));
    if (keys.back().empty()) fail("a key between the dots is empty");
    begin = dot + 1;
  }
  if (keys.size() > kMaxJsonDepth) fail("too many keys");

  json* at = &document;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool last = i + 1 == keys.size();
    if (at->is_array()) {
      std::size_t index = 0;
      const char* end = keys[i].data() + keys[i].size();
      const auto [stop, code] = std::from_chars(keys[i].data(), end, index);
      if (code != std::errc{} || stop != end || index >= at->size()) {
        fail(fmt::format("\"{}\" is not an element of a list of {} (they count from 0)", keys[i],
                         at->size()));
      }
      at = &(*at)[index];
    } else {
      if (at->is_null()) *at = json::object();
      if (!at->is_object()) fail(fmt::format("\"{}\" is below a value that has no keys", keys[i]));
      // A written null means that the loaded embedding has no padding row (settings/load.cc).
      const bool is_said = keys == std::vector<std::string>{"model", "pad_token_id"};
      if (last && value.is_null() && !is_said) {
        at->erase(keys[i]);
        return;
      }
      at = &(*at)[keys[i]];
    }
  }
  *at = std::move(value);
}

}  // namespace

void apply_overrides(json& document, const std::vector<std::string>& overrides) {
  std::vector<std::string> problems;
  for (const std::string& text : overrides) {
    try {
      apply_override(document, text);
    } catch (const RequestError& error) {
      problems.emplace_back(error.what());
    }
  }
  if (!problems.empty()) throw RequestError(problems);
}

}  // namespace trident::config_detail
