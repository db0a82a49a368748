#include "formats/hugging_face/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "formats/hugging_face/key_mapping.h"

namespace trident {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // bytes, the format's own limit
constexpr std::uint64_t kMaxIndex = 8 << 20;       // bytes of model.safetensors.index.json
constexpr std::size_t kMaxDimensions = 64;         // as in numpy

struct TypeRow {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype;
};
constexpr TypeRow kTypes[] = {
    {"F64", 64, DType::f64}, {"F32", 32, DType::f32}, {"BF16", 16, DType::bf16},
    {"F16", 16, DType::f16}, {"I64", 64, DType::i64}, {"I32", 32, DType::i32},
    {"U8", 8, DType::u8},    {"BOOL", 8, {}},         {"I8", 8, {}},
    {"I16", 16, {}},         {"U16", 16, {}},         {"U32", 32, {}},
    {"U64", 64, {}},         {"C64", 64, {}},         {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},      {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},  {"F6_E2M3", 6, {}},      {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

const TypeRow* find_type(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &TypeRow::name);
  return row == std::end(kTypes) ? nullptr : row;
}

// Parses the header, {"tensor": {"dtype": s, "shape": [n…], "data_offsets": [a, b]}, …,
// "__metadata__": {s: s}}. It has three levels and is handled as events, so that a hostile header
// takes no more memory than its own entries. A handler that returns false stops the parser;
// `problem` then has the reason.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(std::size_t) override {
    if (level_ == 0) return push(Level::root);
    if (level_ == 1 && root_key_ == "__metadata__") return push(Level::metadata);
    if (level_ == 1) {
      seen_ = 0;
      entries.emplace_back().name = root_key_;
      return push(Level::tensor);
    }
    return wrong("an object");
  }
  bool end_object() override {
    if (levels_[--level_] != Level::tensor) return true;
    if (seen_ == 7) return true;
    return stop(fmt::format("tensor \"{}\" lacks {}", printable(root_key_),
                            !(seen_ & 1)   ? "dtype"
                            : !(seen_ & 2) ? "shape"
                                           : "data_offsets"));
  }
  bool start_array(std::size_t) override {
    if (level_ == 2 && levels_[1] == Level::tensor && (key_ == "shape" || key_ == "data_offsets")) {
      numbers_.clear();
      return push(Level::numbers);
    }
    return wrong("an array");
  }
  bool end_array() override {
    --level_;
    if (key_ == "shape") {
      entries.back().shape.assign(numbers_.begin(), numbers_.end());
      return true;
    }
    if (numbers_.size() != 2) return stop(where() + " needs two numbers");
    entries.back().begin = numbers_[0];
    entries.back().end = numbers_[1];
    return true;
  }
  bool key(string_t& name) override {
    if (level_ == 1) {
      if (!names_.insert(name).second)
        return stop(fmt::format("duplicate key \"{}\"", printable(name)));
      root_key_ = name;
      return true;
    }
    key_ = name;
    if (levels_[1] == Level::metadata) {
      return !metadata.contains(name) || stop(fmt::format("duplicate key {}", where()));
    }
    const unsigned bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (bit == 0) return stop("unknown key " + where());
    if (seen_ & bit) return stop("duplicate key " + where());
    seen_ |= bit;
    return true;
  }
  bool string(string_t& value) override {
    if (level_ == 2 && levels_[1] == Level::metadata) {
      metadata.emplace(key_, value);
      return true;
    }
    if (level_ == 2 && key_ == "dtype") {
      entries.back().dtype_name = value;
      return true;
    }
    return wrong("a string");
  }
  bool number_unsigned(std::uint64_t value) override {
    if (level_ != 3) return wrong("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return stop(fmt::format("{} holds {}, beyond 2^63 - 1", where(), value));
    }
    if (numbers_.size() == kMaxDimensions) {
      return stop(fmt::format("{} has more than {} numbers", where(), kMaxDimensions));
    }
    numbers_.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t) override { return wrong("a negative number"); }
  bool number_float(double, const string_t&) override { return wrong("a fraction"); }
  bool boolean(bool) override { return wrong("true or false"); }
  bool null() override { return wrong("null"); }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return stop(
        fmt::format("not JSON at byte {} of the header: {}", position, json_problem(error.what())));
  }

 private:
  enum class Level { root, metadata, tensor, numbers };

  bool push(Level level) {
    levels_[level_++] = level;
    return true;
  }
  bool stop(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool wrong(std::string_view got) {
    if (level_ == 0) return stop(fmt::format("the header is {}, needs an object", got));
    if (level_ == 1)
      return stop(fmt::format("\"{}\" is {}, needs an object", printable(root_key_), got));
    if (levels_[1] == Level::metadata) {
      return stop(fmt::format("{} is {}, needs a string", where(), got));
    }
    return stop(fmt::format("{} can't hold {}", where(), got));
  }
  std::string where() const {
    return fmt::format("\"{}\".\"{}\"", printable(root_key_), printable(key_));
  }

  Level levels_[4] = {};  // open containers, outermost first
  std::size_t level_ = 0;
  std::string root_key_, key_;
  unsigned seen_ = 0;  // of the tensor being read: 1 dtype, 2 shape, 4 data_offsets
  std::vector<std::uint64_t> numbers_;
  std::set<std::string> names_;
};

// The bytes of a tensor; nullopt if they overflow or aren't a multiple of 8 bits.
std::optional<std::uint64_t> byte_count(std::span<const std::int64_t> shape, unsigned bits) {
  std::uint64_t count = bits;
  bool empty = false;
  for (const std::int64_t n : shape) {
    if (n == 0) empty = true;
    if (n != 0 && __builtin_mul_overflow(count, static_cast<std::uint64_t>(n), &count)) return {};
  }
  if (empty) return 0;
  if (count % 8 != 0) return {};
  return count / 8;
}

void check_entry(const std::string& path, SafetensorsEntry& entry, std::uint64_t data_bytes) {
  const auto* type = find_type(entry.dtype_name);
  if (type == nullptr) {
    throw RequestError(fmt::format("{}: tensor \"{}\": unknown dtype \"{}\"", path,
                                   printable(entry.name), printable(entry.dtype_name)));
  }
  entry.dtype = type->dtype;
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw RequestError(
        fmt::format("{}: tensor \"{}\": data_offsets [{}, {}] must rise and lie within the {} "
                    "bytes of data",
                    path, printable(entry.name), entry.begin, entry.end, data_bytes));
  }
  const auto need = byte_count(entry.shape, type->bits);
  if (!need || *need != entry.bytes()) {
    throw RequestError(fmt::format(
        "{}: tensor \"{}\": shape [{}] of {} needs {} bytes, data_offsets [{}, {}] give {}", path,
        printable(entry.name), fmt::join(entry.shape, ", "), entry.dtype_name,
        need ? std::to_string(*need) : "more than 2^64", entry.begin, entry.end, entry.bytes()));
  }
}

// Whether it names a file in the index's directory: not empty, no path, no control characters.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         printable(name, name.size()) == name;
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& row : kTypes) {
    if (row.dtype == dtype) return row.name;
  }
  throw Error("safetensors has no name for this dtype");
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::byte length_bytes[8];
  if (file_.size() < sizeof(length_bytes)) {
    throw RequestError(fmt::format("{}: {} bytes; a safetensors file begins with an 8-byte length",
                                   path, file_.size()));
  }
  file_.read_at(0, length_bytes);
  const auto length = load_little_endian<std::uint64_t>(length_bytes);
  const std::uint64_t limit = std::min(kMaxHeader, file_.size() - 8);
  if (length > limit) {
    throw RequestError(
        fmt::format("{}: header length {} is beyond the limit {} (100,000,000 bytes, and the file "
                    "has {} after the length)",
                    path, length, limit, file_.size() - 8));
  }
  std::string header(length, '\0');
  file_.read_at(8, std::as_writable_bytes(std::span(header.data(), header.size())));
  if (!header.starts_with('{')) {
    throw RequestError(fmt::format("{}: the header must begin with '{{'", path));
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header, &handler)) {
    throw RequestError(fmt::format("{}: {}", path, handler.problem));
  }
  data_begin_ = 8 + length;
  tensors_ = std::move(handler.entries);
  metadata_ = std::move(handler.metadata);

  const std::uint64_t data_bytes = file_.size() - data_begin_;
  for (auto& entry : tensors_) check_entry(path, entry, data_bytes);
  std::ranges::stable_sort(tensors_, [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& entry = tensors_[i];
    if (entry.begin != covered) {
      throw RequestError(
          fmt::format("{}: tensor \"{}\" begins at byte {} of the data, the ones "
                      "before it end at {}: {}",
                      path, printable(entry.name), entry.begin, covered,
                      entry.begin > covered ? "a hole" : "an overlap"));
    }
    covered = entry.end;
    by_name_.emplace(entry.name, i);
  }
  if (covered != data_bytes) {
    throw RequestError(fmt::format("{}: the tensors end at byte {} of the data, the file at {}",
                                   path, covered, data_bytes));
  }
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  const auto* entry = find(name);
  if (!entry) throw RequestError(fmt::format("{}: no tensor \"{}\"", path(), printable(name)));
  return *entry;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  read_rows(entry, 0, entry.rows(), out);
}

std::int64_t SafetensorsEntry::rows() const {
  return stored_rows(shape);
}

void SafetensorsFile::read_rows(const SafetensorsEntry& entry, std::int64_t first_row,
                                std::int64_t rows, std::span<std::byte> out) const {
  if (first_row < 0 || rows < 0 || first_row > entry.rows() - rows) {
    throw Error(fmt::format("{}: tensor \"{}\": rows {} to {} asked for, it has {}", path(),
                            entry.name, first_row, first_row + rows, entry.rows()));
  }
  if (!entry.dtype) {
    throw RequestError(fmt::format("{}: tensor \"{}\" has dtype {}, which Trident doesn't read",
                                   path(), entry.name, entry.dtype_name));
  }
  const std::uint64_t row_bytes =
      entry.rows() == 0 ? 0 : entry.bytes() / static_cast<std::uint64_t>(entry.rows());
  if (out.size() != row_bytes * static_cast<std::uint64_t>(rows)) {
    throw Error(fmt::format("{}: tensor \"{}\": {} rows are {} bytes, the buffer has {}", path(),
                            entry.name, rows, row_bytes * static_cast<std::uint64_t>(rows),
                            out.size()));
  }
  file_.read_at(data_begin_ + entry.begin + row_bytes * static_cast<std::uint64_t>(first_row), out);
}

SafetensorsSet::SafetensorsSet(const std::string& directory) : directory_(directory) {
  const auto root = std::filesystem::path(directory);
  const auto single = root / "model.safetensors";
  const auto index = root / "model.safetensors.index.json";
  std::error_code unreadable;  // if set, opening the file reports the reason
  if (std::filesystem::exists(single, unreadable) || unreadable) {
    files_.push_back(std::make_unique<SafetensorsFile>(single.string()));
    for (const auto& entry : files_[0]->tensors()) {
      places_.emplace(entry.name, Place{files_[0].get(), &entry});
    }
    return;
  }
  if (!std::filesystem::exists(index, unreadable)) {
    throw RequestError(fmt::format(
        "{}: holds neither model.safetensors nor model.safetensors.index.json", directory));
  }
  const auto document = parse_json(read_file(index.string(), kMaxIndex), index.string());
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object()) {
    throw RequestError(fmt::format("{}: /weight_map: needs an object", index.string()));
  }
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, shard] : document["weight_map"].items()) {
    // An index must not name files outside its directory.
    const bool plain = shard.is_string() && is_file_name(shard.get_ref<const std::string&>());
    if (!plain) {
      throw RequestError(fmt::format("{}: /weight_map/{}: needs the name of a file beside it",
                                     index.string(), printable(name)));
    }
    const auto& shard_name = shard.get_ref<const std::string&>();
    auto& file = shards[shard_name];
    if (!file) {
      files_.push_back(std::make_unique<SafetensorsFile>((root / shard_name).string()));
      file = files_.back().get();
    }
    places_.emplace(name, Place{file, &file->at(name)});
  }
  for (const auto& file : files_) {
    for (const auto& entry : file->tensors()) {
      const auto at = places_.find(entry.name);
      if (at != places_.end() && at->second.file == file.get()) continue;
      throw RequestError(fmt::format(
          "{}: tensor \"{}\" is here, but {} {}", file->path(), printable(entry.name),
          index.string(), at == places_.end() ? "doesn't name it" : "names another file for it"));
    }
  }
}

void SafetensorsSet::rename(const std::map<std::string, std::string>& mapping) {
  if (mapping.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, where] : places_) names.push_back(name);
  std::map<std::string, Place, std::less<>> places;
  for (const auto& [name, other] : mapped_names(names, mapping)) {
    Place where = places_.at(name);
    if (other != name) {
      renamed_.push_back(std::make_unique<SafetensorsEntry>(*where.entry));
      renamed_.back()->name = other;
      where.entry = renamed_.back().get();
    }
    places.emplace(other, where);
  }
  places_ = std::move(places);
}

std::vector<const SafetensorsEntry*> SafetensorsSet::tensors() const {
  std::vector<const SafetensorsEntry*> all;
  all.reserve(places_.size());
  for (const auto& [name, where] : places_) all.push_back(where.entry);
  return all;
}

const SafetensorsSet::Place& SafetensorsSet::place(std::string_view name) const {
  const auto it = places_.find(name);
  if (it == places_.end())
    throw RequestError(fmt::format("{}: no tensor \"{}\"", directory_, printable(name)));
  return it->second;
}

const SafetensorsEntry* SafetensorsSet::find(std::string_view name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? nullptr : it->second.entry;
}

const SafetensorsEntry& SafetensorsSet::at(std::string_view name) const {
  return *place(name).entry;
}

const std::string& SafetensorsSet::file_of(std::string_view name) const {
  return place(name).file->path();
}

void SafetensorsSet::read(std::string_view name, std::span<std::byte> out) const {
  const auto& [file, entry] = place(name);
  file->read(*entry, out);
}

void SafetensorsSet::read_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                               std::span<std::byte> out) const {
  const auto& [file, entry] = place(name);
  file->read_rows(*entry, first_row, rows, out);
}

}  // namespace trident
