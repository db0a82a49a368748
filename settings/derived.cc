// A filled-in config lists which of its values were derived. When it is read back, values that
// follow from an override or an edit are derived anew; the others keep the run's values.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/content_hash.h"
#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A derived key: the value that was written there (null: none), and the derived value.
struct Entry {
  std::string path;
  json written, value;
};

constexpr auto kKeys = "keys";
constexpr auto kFingerprint = "fingerprint";

// A hash of a filled-in config without its derived values, which reveals later edits. A null key
// counts as a missing key.
std::string fingerprint(const json& document) {
  json given = json::object();
  for (const Field& field : fields()) {
    const json* value = find(document, field.path);
    if (value != nullptr && !value->is_null()) given[field.path] = *value;
  }
  return fmt::format("{:016x}", content_hash(json_text(given)));
}

void put(json& document, const std::string& path, const json& value) {
  const json::json_pointer at(path);
  if (!value.is_null()) {
    document[at] = value;
  } else if (document.contains(at)) {
    document[at.parent_pointer()].erase(at.back());
  }
}

// Whether the value of a field may be derived. Sources and groups stay as they are written, and the
// default of logging.dir names the file that the config was first read from.
bool may_be_derived(const Field& field) {
  return !std::holds_alternative<Member<std::vector<DataSource>>>(field.member) &&
         !std::holds_alternative<Member<std::vector<ValidationSet>>>(field.member) &&
         !std::holds_alternative<Member<std::vector<ParamGroup>>>(field.member) &&
         field.path != "/logging/dir";
}

std::vector<Entry> entries_of(const json& written, const Config& config) {
  std::vector<Entry> entries;
  for (const Field& field : fields()) {
    if (!may_be_derived(field)) continue;
    const json value = value_of(field, config);
    const json* const own = find(written, field.path);
    const bool given = own != nullptr && !own->is_null();
    const bool constant = field.derived.empty() && value == json(usual_value(field));
    if (given ? *own == value : value.is_null() || constant) continue;
    entries.push_back({field.path, given ? *own : json(), value});
  }
  return entries;
}

std::vector<Entry> read_entries(const json& derived) {
  const auto fail = [](const std::string& what) {
    throw RequestError("config: /derived: " + what +
                       "; leave it as the run wrote it, or take it out to hold every number");
  };
  if (!derived.is_object() || !derived.contains(kKeys) || !derived[kKeys].is_object() ||
      !derived.contains(kFingerprint)) {
    fail("needs an object \"keys\" and a \"fingerprint\"");
  }
  std::vector<Entry> entries;
  for (const auto& [path, entry] : derived[kKeys].items()) {
    const auto known = std::find_if(fields().begin(), fields().end(),
                                    [&](const Field& field) { return field.path == path; });
    if (known == fields().end() || !may_be_derived(*known)) fail("\"" + path + "\" is no such key");
    if (!entry.is_object() || !entry.contains("written") || !entry.contains("value")) {
      fail("\"" + path + "\" needs \"written\" and \"value\"");
    }
    entries.push_back({path, entry["written"], entry["value"]});
  }
  return entries;
}

// Whether an override sets this key, a key below it or a key above it.
bool overridden(const std::string& path, const std::vector<std::string>& overrides) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const std::string& text) {
    std::string set = "/" + text.substr(0, text.find('='));
    std::replace(set.begin(), set.end(), '.', '/');
    return (set + "/").starts_with(path + "/") || (path + "/").starts_with(set + "/");
  });
}

// Puts written values back in place of derived values that are unchanged, except where an override
// sets the key.
json undone(json document, const std::vector<Entry>& entries,
            const std::vector<std::string>& overrides) {
  for (const Entry& entry : entries) {
    const json* const now = find(document, entry.path);
    if ((now == nullptr ? json() : *now) != entry.value) continue;
    if (!overridden(entry.path, overrides)) put(document, entry.path, entry.written);
  }
  return document;
}

// Removes keys that have their constant default, as the written config didn't have them.
void take_out_defaults(json& document) {
  for (const Field& field : fields()) {
    const json* const value = find(document, field.path);
    if (value != nullptr && field.derived.empty() && *value == json(usual_value(field))) {
      put(document, field.path, json());
    }
  }
}

// Derives the values of a document as far as possible; values that can't be derived are unsound.
struct Derived {
  Derived(const json& document, const LoadOptions& options, const std::string& name) {
    fill_in(document, options, name, config, problems);
  }
  json value(const std::string& path) const {
    const auto field = std::find_if(fields().begin(), fields().end(),
                                    [&](const Field& one) { return one.path == path; });
    return value_of(*field, config);
  }
  Config config;
  Problems problems;
};

// Whether a key follows from the length of the run alone. With training.train_epochs the length
// depends on the data, so these keys are always derived anew.
bool follows_from_length(const std::string& path) {
  return path == "/training/train_iters" || path == "/scheduler/decay_iters" ||
         path == "/scheduler/warmup_iters" || path == "/scheduler/warmup_ratio" ||
         path == "/scheduler/wsd_decay_iters";
}

}  // namespace

json as_written(json document) {
  if (!document.contains(kDerived)) return document;
  const std::vector<Entry> entries = read_entries(document[kDerived]);
  document.erase(kDerived);
  document = undone(std::move(document), entries, {});
  take_out_defaults(document);
  return document;
}

json override_document(json& document, const std::vector<std::string>& overrides,
                       const LoadOptions& options, const std::string& name) {
  json file = document;
  apply_overrides(document, overrides);
  if (!document.contains(kDerived)) return document;
  const std::vector<Entry> entries = read_entries(document[kDerived]);
  const json recorded = document[kDerived][kFingerprint];
  document.erase(kDerived);
  file.erase(kDerived);

  std::vector<Entry> held;  // entries that still have their derived values
  for (const Entry& entry : entries) {
    const json* const now = find(file, entry.path);
    const bool is_still = (now == nullptr ? json() : *now) == entry.value;
    if (is_still && !overridden(entry.path, overrides)) held.push_back(entry);
  }
  // The written config, without and with the overrides.
  const json before = undone(file, entries, {});
  json after = undone(file, entries, overrides);
  take_out_defaults(after);
  apply_overrides(after, overrides);
  // If the layout is to be chosen anew, or after an edit, all values are derived anew.
  if (has_parallel_word(after) || json(fingerprint(before)) != recorded) {
    document = after;
    return after;
  }

  const Derived old(before, options, name), fresh(after, options, name);
  for (const Entry& entry : held) {
    if (follows_from_length(entry.path)) {
      put(document, entry.path, entry.written);
    } else if (old.problems.sound(entry.path) && fresh.problems.sound(entry.path) &&
               old.value(entry.path) != fresh.value(entry.path)) {
      put(document, entry.path, fresh.value(entry.path));
    }
  }
  return after;
}

std::string written_text(const json& written) {
  ordered_json document = ordered_json::object();
  for (const Field& field : fields()) {
    const json* value = find(written, field.path);
    if (value != nullptr) document[ordered_json::json_pointer(field.path)] = *value;
  }
  return json_text(document, 2) + "\n";
}

}  // namespace config_detail

std::string config_to_json(const Config& config) {
  return config_to_json(config, "");
}

std::string config_to_json(const Config& config, const std::string& written) {
  using namespace config_detail;
  ordered_json document = ordered_json::object();
  for (const Field& field : fields()) {
    document[ordered_json::json_pointer(field.path)] = value_of(field, config);
  }
  if (written.empty()) return json_text(document, 2) + "\n";
  json before = document;
  ordered_json keys = ordered_json::object();
  for (const Entry& entry : entries_of(parse_json(written, "config.json"), config)) {
    keys[entry.path] = {{"written", entry.written}, {"value", entry.value}};
    put(before, entry.path, entry.written);
  }
  document[kDerived] = {{kFingerprint, fingerprint(before)}, {kKeys, keys}};
  return json_text(document, 2) + "\n";
}

bool is_written(const std::string& written, std::string_view path) {
  if (written.empty()) return true;
  const auto document = parse_json(written, "config.json");
  const auto* value = config_detail::find(document, path);
  return value != nullptr && !value->is_null();
}

}  // namespace trident
