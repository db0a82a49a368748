// Writes a config with a comment above each of its keys.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kWidth = 100;

// The first sentence of `text`, without backquotes.
std::string begin_of(std::string text) {
  std::erase(text, '`');
  const auto end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

void add_comment(std::string& out, const std::string& indent, const std::string& text) {
  std::string line = indent + "//";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (line.size() + 1 + end - at > kWidth) {
      out += line + "\n";
      line = indent + "//";
    }
    line += " " + text.substr(at, end - at);
    at = end + 1;
  }
  out += line + "\n";
}

std::string meaning_of(const std::string& path, const ConfigConstraints& constraints) {
  for (const Field& field : fields()) {
    if (field.path == path) return begin_of(field.doc(constraints));
  }
  for (const Section& section : sections()) {
    if (section.path == path) return begin_of(section.doc);
  }
  return "";
}

// Adds a space after each comma and colon outside strings.
std::string spaced(const std::string& text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    result += text[i];
    if (!quoted && (text[i] == ',' || text[i] == ':')) result += ' ';
  }
  return result;
}

void add_object(std::string& out, const ordered_json& object, const std::string& path,
                const std::string& indent, const ConfigConstraints& constraints) {
  out += "{\n";
  std::size_t left = object.size();
  for (const auto& [key, value] : object.items()) {
    const std::string at = json_pointer_append(path, key);
    const bool section = std::ranges::any_of(
        sections(), [&](const Section& one) { return one.path == at && value.is_object(); });
    if (const std::string text = meaning_of(at, constraints); !text.empty()) {
      add_comment(out, indent, text);
    }
    out += indent + json_text(ordered_json(key)) + ": ";
    if (section) {
      add_object(out, value, at, indent + "  ", constraints);
    } else {
      out += spaced(json_text(value));
    }
    out += --left > 0 ? ",\n" : "\n";
    if (section && left > 0 && path.empty()) out += "\n";
  }
  out += indent.substr(2) + "}";
}

}  // namespace
}  // namespace config_detail

std::string annotated_config(const std::string& config, const ConfigConstraints& constraints) {
  std::string out;
  config_detail::add_object(out, ordered_json_or_null(config), "", "  ", constraints);
  return out + "\n";
}

}  // namespace trident
