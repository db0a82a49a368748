#include "training/data/json_document.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"

namespace trident {
namespace {

using nlohmann::json;

// Takes the one string, and looks at the rest only as far as it has to be JSON.
class TextFinder : public nlohmann::json_sax<json> {
 public:
  explicit TextFinder(std::string_view key) : key_(key) {}

  std::optional<std::string> text;
  bool is_object = false, is_string = true;
  std::string error;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& value) override {
    if (depth_ == 1 && wanted_) {
      text = std::move(value);
      is_string = true;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) is_object = true;
    return open();
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& value) override {
    if (depth_ == 1) wanted_ = value == key_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& problem) override {
    error = json_problem(problem.what());
    return false;
  }

 private:
  bool other() {
    if (depth_ == 1 && wanted_) is_string = false;
    return true;
  }
  bool open() {
    if (depth_ == 1) other();
    if (++depth_ <= static_cast<int>(kMaxJsonDepth)) return true;
    error = fmt::format("is nested more than {} deep", kMaxJsonDepth);
    return false;
  }

  std::string_view key_;
  int depth_ = 0;
  bool wanted_ = false;
};

}  // namespace

std::string text_in_json(std::string_view line, std::string_view key) {
  TextFinder finder(key);
  if (!json::sax_parse(line.begin(), line.end(), &finder)) {
    throw RequestError("isn't JSON: " + finder.error);
  }
  if (!finder.is_object) throw RequestError("isn't a JSON object, as each line has to be");
  if (!finder.is_string) {
    throw RequestError(fmt::format("\"{}\" isn't a string", printable(key, 60)));
  }
  if (!finder.text) {
    throw RequestError(fmt::format("has no \"{}\"; data.json_key says which key has the text",
                                   printable(key, 60)));
  }
  return std::move(*finder.text);
}

}  // namespace trident
