#include "checkpoint/checkpoint_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <variant>

#include "base/error.h"
#include "base/files/crc64.h"
#include "base/files/file.h"
#include "base/files/file_system.h"
#include "formats/hugging_face/model_directory.h"
#include "formats/hugging_face/weights_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

// Calls visit(bytes) for the rows of a tensor, about a block at a time.
void each_part(CheckpointReader& reader, const std::string& name,
               const std::function<void(std::span<const std::byte>)>& visit) {
  const SavedTensor& tensor = *reader.find(name);
  const std::int64_t rows = tensor.shape.matrix_rows(), columns = tensor.shape.matrix_columns();
  const auto row_bytes = static_cast<std::uint64_t>(columns) * size_of(tensor.dtype);
  const auto most = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, checkpoint_block / std::max<std::uint64_t>(1, row_bytes)));
  std::vector<std::byte> bytes;
  for (std::int64_t row = 0; row < rows; row += most) {
    const std::int64_t n = std::min(most, rows - row);
    bytes.resize(static_cast<std::size_t>(n) * row_bytes);
    reader.read(name, {row, 0, n, columns}, columns, bytes);
    visit(bytes);
  }
}

std::vector<double> doubles(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  with_element_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        values[i] = static_cast<float>(value);
      } else {
        values[i] = static_cast<double>(value);
      }
    }
  });
  return values;
}

// "" if they are bitwise identical.
std::string tensor_difference(CheckpointReader& a, CheckpointReader& b, const std::string& name) {
  const SavedTensor &x = *a.find(name), &y = *b.find(name);
  if (x.shape != y.shape || x.dtype != y.dtype) {
    return fmt::format("{} of {} and {} of {}", name_of(x.dtype), x.shape.to_string(),
                       name_of(y.dtype), y.shape.to_string());
  }
  std::vector<std::vector<std::byte>> parts;
  each_part(a, name, [&](std::span<const std::byte> bytes) {
    parts.emplace_back(bytes.begin(), bytes.end());
  });
  std::size_t next = 0, elements = 0;
  double most = 0;
  const std::size_t element = size_of(x.dtype);
  each_part(b, name, [&](std::span<const std::byte> bytes) {
    const std::vector<std::byte>& other = parts[next++];
    if (std::ranges::equal(bytes, other)) return;
    const std::vector<double> p = doubles(x.dtype, other), q = doubles(x.dtype, bytes);
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (std::memcmp(&bytes[i * element], &other[i * element], element) == 0) continue;
      ++elements;
      const double apart = std::abs(p[i] - q[i]);
      most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    }
  });
  if (elements == 0) return "";
  return fmt::format("{} of {} elements, by {:.3g} at most", elements, x.shape.numel(), most);
}

template <class Map, class Compare>
void compare_maps(const Map& a, const Map& b, const std::string& prefix, const Compare& compare,
                  std::vector<Difference>& list) {
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      list.push_back({prefix + name, "only in the first"});
      continue;
    }
    const std::string what = compare(name, value, other->second);
    if (!what.empty()) list.push_back({prefix + name, what});
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) list.push_back({prefix + name, "only in the second"});
  }
}

}  // namespace

std::string checkpoints_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw RequestError(path + ": is no directory");
  if (!find_checkpoints(path).empty()) return path;
  std::string save = path;
  if (fs::exists(fs::path(path) / "config.json", ignored)) save = weights_directory(path);
  if (find_checkpoints(save).empty()) throw RequestError(save + ": holds no checkpoint");
  return save;
}

FoundCheckpoint checkpoint_at(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(fs::path(path) / manifest_name, ignored) ||
      iteration_of(fs::path(path).filename().string())) {
    FoundCheckpoint found{.path = path, .manifest = open_checkpoint(path)};
    found.iteration = found.manifest->iteration;
    return found;
  }
  const std::string save = checkpoints_of(path);
  std::vector<FoundCheckpoint> found = find_checkpoints(save);
  const std::string problem = found.empty() ? save + ": holds no checkpoint" : found.back().problem;
  found = newest_first(std::move(found));
  if (found.empty()) throw RequestError(problem);
  return found.front();
}

std::int64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return static_cast<std::int64_t>(bytes);
}

std::uint64_t tensor_sum(CheckpointReader& reader, const std::string& name) {
  const SavedTensor& tensor = *reader.find(name);
  const auto bytes = static_cast<std::uint64_t>(tensor.shape.numel()) * size_of(tensor.dtype);
  if (bytes == 0) return crc64(std::string_view());
  BlockSums sum(bytes, bytes);
  std::uint64_t at = 0;
  each_part(reader, name, [&](std::span<const std::byte> part) {
    sum.add(at, part);
    at += part.size();
  });
  return sum.sums().front();
}

std::vector<Difference> differences(CheckpointReader& a, CheckpointReader& b) {
  std::vector<Difference> list;
  compare_maps(
      a.manifest().numbers, b.manifest().numbers, "",
      [](const std::string&, const SavedNumber& x, const SavedNumber& y) {
        if (x == y) return std::string();
        const auto text = [](const SavedNumber& n) {
          return std::visit([](auto value) { return fmt::format("{}", value); }, n);
        };
        return fmt::format("{} and {}", text(x), text(y));
      },
      list);
  compare_maps(
      a.manifest().tensors, b.manifest().tensors, "",
      [&](const std::string& name, const SavedTensor&, const SavedTensor&) {
        return tensor_difference(a, b, name);
      },
      list);
  return list;
}

void require_whole_weights(const std::string& directory) {
  const std::string path = (fs::path(directory) / manifest_name).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const Manifest manifest = parse_manifest(read_file(path, max_manifest_bytes), path);
  for (const auto& [name, saved] : manifest.files) {
    if (name.starts_with("trident/") || !name.ends_with(".safetensors")) continue;
    VerifiedFile((fs::path(directory) / name).string(), saved).verify_all();
  }
}

void export_weights(const FoundCheckpoint& checkpoint, const std::string& directory) {
  NewWeights folder(directory);
  const auto copy = [&](const std::string& name, const SavedFile& saved) {
    const VerifiedFile from((fs::path(checkpoint.path) / name).string(), saved);
    AtomicFile to((fs::path(folder.path()) / name).string());
    ByteBuffer bytes;
    for (std::size_t block = 0; block < from.blocks(); ++block) {
      from.read(block, bytes);
      to.write_at(block * checkpoint_block, bytes);
    }
    to.commit();
  };
  const auto& files = checkpoint.manifest->files;
  for (const auto& [name, saved] : files) {
    if (!name.starts_with("trident/") && name != "config.json") copy(name, saved);
  }
  const auto config = files.find("config.json");
  if (config == files.end()) {
    throw RequestError(checkpoint.path + ": " + manifest_name + " lists no config.json");
  }
  copy(config->first, config->second);
  folder.commit();
}

}  // namespace trident
