#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/crc64.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "formats/hugging_face/safetensors.h"

namespace trident {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "trident checkpoint";
constexpr std::string_view kRoot = ",\n\"root\": ";
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 53;

// The dtypes that a state can have.
constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                             DType::i64, DType::i32, DType::u8};

std::string json_string(std::string_view text) {
  return json_text(json(std::string(text)));
}

template <class Map, class Text>
std::string object_text(const Map& map, const Text& text) {
  std::string all = "{";
  for (const auto& [name, value] : map) {
    all += fmt::format("{}\n {}: {}", all.size() == 1 ? "" : ",", json_string(name), text(value));
  }
  return all + (map.empty() ? "}" : "\n}");
}

std::string tensor_text(const SavedTensor& tensor) {
  std::string text =
      fmt::format("{{\"dtype\": \"{}\", \"shape\": [", safetensors_name(tensor.dtype));
  for (int d = 0; d < tensor.shape.rank(); ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", tensor.shape.dim(d));
  }
  text += "], \"pieces\": [";
  for (const SavedShard& shard : tensor.shards) {
    const TensorSlice& slice = shard.slice;
    text += fmt::format("{}[{}, {}, {}, {}, {}, {}{}]", text.back() == '[' ? "" : ", ",
                        json_string(shard.file), json_string(shard.tensor), slice.row, slice.column,
                        slice.rows, slice.columns, shard.transposed ? ", true" : "");
  }
  return text + "]}";
}

// The oldest version that describes these tensors.
std::int64_t version_of(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors,
                             [](const auto& tensor) { return tensor.second.shape.rank() > 2; })
             ? 2
             : 1;
}

std::string file_text(const SavedFile& file) {
  std::string text = fmt::format("{{\"bytes\": {}, \"blocks\": [", file.bytes);
  for (const std::uint64_t sum : file.blocks) {
    text += fmt::format("{}\"{}\"", text.back() == '[' ? "" : ", ", hex64(sum));
  }
  return text + "]}";
}

// Reads members of the document. Its errors have the JSON pointer of the member.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& name) : name_(name) {}

  [[noreturn]] void fail(const std::string& pointer, const std::string& rule) const {
    throw RequestError(fmt::format("{}: {}: {}", name_, printable(pointer), rule));
  }
  const json& member(const json& object, const std::string& pointer, const char* key) const {
    const auto it = object.find(key);
    if (it == object.end()) fail(pointer + "/" + key, "is missing");
    return *it;
  }
  void only(const json& object, const std::string& pointer,
            std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(keys, key) == keys.end()) {
        fail(json_pointer_append(pointer, key), "is no key of this format");
      }
    }
  }
  const json& object(const json& value, const std::string& pointer) const {
    if (!value.is_object()) fail(pointer, "needs an object");
    return value;
  }
  const json& array(const json& value, const std::string& pointer) const {
    if (!value.is_array()) fail(pointer, "needs an array");
    return value;
  }
  std::string text(const json& value, const std::string& pointer) const {
    if (!value.is_string()) fail(pointer, "needs a string");
    return value.get<std::string>();
  }
  // From 0 to 2^53, so that a resumed run can add to it and every JSON reader represents it.
  std::int64_t count(const json& value, const std::string& pointer) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxCount) {
      fail(pointer, "needs a whole number from 0 to 2^53");
    }
    return value.get<std::int64_t>();
  }
  std::uint64_t sum(const json& value, const std::string& pointer) const {
    const std::string digits = text(value, pointer);
    std::uint64_t sum = 0;
    if (digits.size() != 16) fail(pointer, "needs 16 hexadecimal digits");
    for (const char c : digits) {
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && (c < 'a' || c > 'f')) fail(pointer, "needs 16 hexadecimal digits");
      sum = sum << 4 | static_cast<std::uint64_t>(decimal ? c - '0' : c - 'a' + 10);
    }
    return sum;
  }

 private:
  const std::string& name_;
};

// Whether it names a file directly in the folder or in its trident/.
bool stays_inside(std::string_view path) {
  if (path.starts_with("trident/")) path.remove_prefix(8);
  return !path.empty() && path != "." && path != ".." && path.find('/') == std::string_view::npos &&
         path.find('\0') == std::string_view::npos && printable(path, path.size()) == path;
}

// Why the shards don't tile the shape, with the first conflicting element; nullopt if they do.
std::optional<std::string> not_tiled(const Shape& shape, const std::vector<SavedShard>& shards) {
  const std::int64_t rows = shape.matrix_rows(), columns = shape.matrix_columns();
  std::vector<const TensorSlice*> slices;
  std::int64_t area = 0;
  for (const SavedShard& shard : shards) {
    const TensorSlice& slice = shard.slice;
    if (slice.row > rows - slice.rows || slice.column > columns - slice.columns) {
      return fmt::format("{} rows and {} columns from ({}, {}) on leave the tensor", slice.rows,
                         slice.columns, slice.row, slice.column);
    }
    area += slice.rows * slice.columns;  // each area is at most the tensor's, which fits
    if (area > rows * columns) return "pieces overlap";
    if (slice.rows > 0 && slice.columns > 0) slices.push_back(&slice);
  }
  if (area < rows * columns) {
    return fmt::format("pieces hold {} of {} elements", area, rows * columns);
  }
  // Go through the slices by rows. `open` holds the slices that the current row meets, by column.
  std::ranges::sort(slices, {},
                    [](const TensorSlice* slice) { return std::pair(slice->row, slice->column); });
  std::vector<const TensorSlice*> ends = slices;
  std::ranges::sort(ends, {}, [](const TensorSlice* slice) { return slice->row + slice->rows; });
  std::map<std::int64_t, std::int64_t> open;
  std::size_t ended = 0;
  for (const TensorSlice* slice : slices) {
    for (; ended < ends.size() && ends[ended]->row + ends[ended]->rows <= slice->row; ++ended) {
      open.erase(ends[ended]->column);
    }
    const auto next = open.lower_bound(slice->column);
    if ((next != open.end() && next->first < slice->column + slice->columns) ||
        (next != open.begin() && std::prev(next)->second > slice->column)) {
      return fmt::format("pieces overlap at ({}, {})", slice->row, slice->column);
    }
    open.emplace(slice->column, slice->column + slice->columns);
  }
  return std::nullopt;
}

Shape shape_of(const ManifestReader& read, const json& value, const std::string& pointer,
               std::int64_t version) {
  read.array(value, pointer);
  if (value.empty() || value.size() > (version == 1 ? 2 : Shape::max_rank)) {
    read.fail(pointer, version == 1 ? "needs one or two extents" : "needs one to four extents");
  }
  Shape shape;
  std::int64_t bytes = 8;
  for (std::size_t d = 0; d < value.size(); ++d) {
    const std::string here = fmt::format("{}/{}", pointer, d);
    const std::int64_t extent = read.count(value[d], here);
    if (extent == 0) read.fail(here, "is 0: there is no such tensor");
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      read.fail(pointer, "has more elements than memory can hold");
    }
    shape.append(extent);
  }
  return shape;
}

SavedShard shard_of(const ManifestReader& read, const json& value, const std::string& pointer) {
  read.array(value, pointer);
  if (value.size() != 6 && !(value.size() == 7 && value[6] == true)) {
    read.fail(pointer, "needs [file, tensor, row, column, rows, columns], or these and true");
  }
  const auto number = [&](std::size_t i) {
    return read.count(value[i], fmt::format("{}/{}", pointer, i));
  };
  return {.file = read.text(value[0], pointer + "/0"),
          .tensor = read.text(value[1], pointer + "/1"),
          .slice = {number(2), number(3), number(4), number(5)},
          .transposed = value.size() == 7};
}

SavedTensor tensor_of(const ManifestReader& read, const json& value, const std::string& pointer,
                      std::int64_t version, const std::map<std::string, SavedFile>& files) {
  read.object(value, pointer);
  read.only(value, pointer, {"dtype", "shape", "pieces"});
  SavedTensor tensor;
  const std::string name = read.text(read.member(value, pointer, "dtype"), pointer + "/dtype");
  const auto* dtype = std::ranges::find(kDTypes, name, safetensors_name);
  if (dtype == std::end(kDTypes)) read.fail(pointer + "/dtype", "is no type of a state");
  tensor.dtype = *dtype;
  tensor.shape = shape_of(read, read.member(value, pointer, "shape"), pointer + "/shape", version);
  const std::string at = pointer + "/pieces";
  const json& shards = read.array(read.member(value, pointer, "pieces"), at);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string here = fmt::format("{}/{}", at, i);
    tensor.shards.push_back(shard_of(read, shards[i], here));
    if (!files.contains(tensor.shards.back().file)) {
      read.fail(here + "/0", "names a file that /files doesn't list");
    }
  }
  if (const auto why = not_tiled(tensor.shape, tensor.shards)) read.fail(at, *why);
  // A shard is a whole tensor of its file, so none holds two of them.
  std::set<std::pair<std::string_view, std::string_view>> named;
  for (std::size_t i = 0; i < tensor.shards.size(); ++i) {
    const SavedShard& shard = tensor.shards[i];
    if (shard.slice.rows * shard.slice.columns == 0) continue;
    if (!named.emplace(shard.file, shard.tensor).second) {
      read.fail(fmt::format("{}/{}/1", at, i), "names the tensor of another piece");
    }
  }
  // So memory allocated for a tensor is at most the size of its files.
  for (std::size_t i = 0; i < tensor.shards.size(); ++i) {
    const SavedShard& shard = tensor.shards[i];
    const auto bytes =
        static_cast<std::uint64_t>(shard.slice.rows * shard.slice.columns) * size_of(tensor.dtype);
    if (const std::uint64_t held = files.at(shard.file).bytes; bytes > held) {
      read.fail(fmt::format("{}/{}", at, i),
                fmt::format("takes {} bytes, its file has {}", bytes, held));
    }
  }
  return tensor;
}

SavedFile file_of(const ManifestReader& read, const json& value, const std::string& pointer) {
  read.object(value, pointer);
  read.only(value, pointer, {"bytes", "blocks"});
  SavedFile file;
  file.bytes = static_cast<std::uint64_t>(
      read.count(read.member(value, pointer, "bytes"), pointer + "/bytes"));
  const json& blocks = read.array(read.member(value, pointer, "blocks"), pointer + "/blocks");
  const std::uint64_t need = file.bytes / checkpoint_block + (file.bytes % checkpoint_block != 0);
  if (blocks.size() != need) {
    read.fail(pointer + "/blocks",
              fmt::format("has {} sums, {} bytes need {}", blocks.size(), file.bytes, need));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    file.blocks.push_back(read.sum(blocks[i], fmt::format("{}/blocks/{}", pointer, i)));
  }
  return file;
}

SavedNumber number_of(const ManifestReader& read, const json& value, const std::string& pointer) {
  if (value.is_number_integer()) {
    constexpr auto kMost = static_cast<double>(kMaxCount);
    if (std::abs(value.get<double>()) > kMost) read.fail(pointer, "is beyond 2^53");
    return value.get<std::int64_t>();
  }
  if (!value.is_number_float()) read.fail(pointer, "needs a number");
  return value.get<double>();
}

// Checks the root and returns the text before it.
std::string_view checked_root(std::string_view text, const std::string& name, std::string& root) {
  const std::size_t at = text.rfind(kRoot);
  if (at == std::string_view::npos) {
    throw RequestError(fmt::format("{}: /root: is missing: the manifest is incomplete", name));
  }
  root = hex64(crc64(text.substr(0, at)));
  if (text.substr(at + kRoot.size()) != "\"" + root + "\"}\n") {
    throw RequestError(fmt::format(
        "{}: /root: is not {}, the sum of the text before it: the file is damaged", name, root));
  }
  return text.substr(0, at);
}

}  // namespace

std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string saved_name(std::string_view state, std::string_view parameter) {
  return fmt::format("{}/{}", state, parameter);
}

std::string manifest_text(Manifest& manifest) {
  const auto number = [](const SavedNumber& value) {
    return std::visit([](const auto& n) { return json_text(json(n)); }, value);
  };
  std::string text = fmt::format(
      "{{\"format\": \"{}\",\n\"version\": {},\n\"block_bytes\": {},\n\"iteration\": {},\n"
      "\"sequence\": {},\n\"run_id\": {},\n\"made_by\": {},\n"
      "\"data\": {{\"samples\": {}, \"tokens\": {}}},\n\"numbers\": {},\n\"tensors\": {},\n"
      "\"files\": {}",
      kFormat, version_of(manifest), checkpoint_block, manifest.iteration, manifest.sequence,
      json_string(manifest.run_id), object_text(manifest.made_by, json_string), manifest.samples,
      manifest.tokens, object_text(manifest.numbers, number),
      object_text(manifest.tensors, tensor_text), object_text(manifest.files, file_text));
  manifest.root = hex64(crc64(text));
  text += fmt::format("{}\"{}\"}}\n", kRoot, manifest.root);
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& name) {
  Manifest manifest;
  checked_root(text, name, manifest.root);
  const json document = parse_json(text, name);
  const ManifestReader read(name);
  read.object(document, "");
  if (read.text(read.member(document, "", "format"), "/format") != kFormat) {
    read.fail("/format", fmt::format("needs \"{}\"", kFormat));
  }
  const std::int64_t version = read.count(read.member(document, "", "version"), "/version");
  if (version < 1 || version > Manifest::latest) {
    throw ForeignCheckpoint(
        fmt::format("{}: /version: {} is another format; this program reads 1 to {}", name, version,
                    Manifest::latest));
  }
  read.only(document, "",
            {"format", "version", "block_bytes", "iteration", "sequence", "run_id", "made_by",
             "data", "numbers", "tensors", "files", "root"});
  const auto count = [&](const json& object, const std::string& pointer, const char* key) {
    return read.count(read.member(object, pointer, key), pointer + "/" + key);
  };
  const auto each = [&](const char* key, const auto& visit) {
    const std::string pointer = std::string("/") + key;
    for (const auto& [member, value] :
         read.object(read.member(document, "", key), pointer).items()) {
      visit(member, value, json_pointer_append(pointer, member));
    }
  };
  if (count(document, "", "block_bytes") != static_cast<std::int64_t>(checkpoint_block)) {
    read.fail("/block_bytes", fmt::format("needs {}", checkpoint_block));
  }
  manifest.iteration = count(document, "", "iteration");
  manifest.sequence = count(document, "", "sequence");
  manifest.run_id = read.text(read.member(document, "", "run_id"), "/run_id");
  const json& data = read.object(read.member(document, "", "data"), "/data");
  read.only(data, "/data", {"samples", "tokens"});
  manifest.samples = count(data, "/data", "samples");
  manifest.tokens = count(data, "/data", "tokens");
  each("made_by", [&](const std::string& key, const json& value, const std::string& pointer) {
    manifest.made_by[key] = read.text(value, pointer);
  });
  each("numbers", [&](const std::string& key, const json& value, const std::string& pointer) {
    manifest.numbers[key] = number_of(read, value, pointer);
  });
  each("files", [&](const std::string& key, const json& value, const std::string& pointer) {
    if (!stays_inside(key) || key == manifest_name) {
      read.fail(pointer, "names no file of the folder or of trident/ in it");
    }
    manifest.files[key] = file_of(read, value, pointer);
  });
  each("tensors", [&](const std::string& key, const json& value, const std::string& pointer) {
    manifest.tensors[key] = tensor_of(read, value, pointer, version, manifest.files);
  });
  return manifest;
}

}  // namespace trident
