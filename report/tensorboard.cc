#include "report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

std::uint32_t masked_crc(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
void append_number(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  store_little_endian(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

// Protobuf's wire format: a tag byte (field << 3 | type), then the value.
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}
void append_message(std::string& out, int field, std::string_view contents) {
  out.push_back(static_cast<char>(field << 3 | 2));
  append_varint(out, contents.size());
  out += contents;
}

// An Event's common fields: 1 double wall_time, 2 int64 step.
std::string event(std::int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string out;
  out.push_back(1 << 3 | 1);
  append_number(out, now.count());
  out.push_back(2 << 3 | 0);
  append_varint(out, static_cast<std::uint64_t>(step));
  return out;
}

std::string record(const std::string& data) {
  std::string out;
  append_number(out, static_cast<std::uint64_t>(data.size()));
  append_number(out, masked_crc(as_bytes_of(out)));
  out += data;
  append_number(out, masked_crc(as_bytes_of(data)));
  return out;
}

// TensorBoard reads a directory's files in the order of their names.
std::string new_name(const std::string& directory) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  char host[256] = "localhost";
  if (::gethostname(host, sizeof(host)) == 0) host[sizeof(host) - 1] = '\0';
  for (int n = 0;; ++n) {
    const auto path =
        std::filesystem::path(directory) /
        fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host, ::getpid(), n);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return path.string();
  }
}

// A Summary of one Value without a number: 1 tag, 8 tensor, 9 SummaryMetadata { 1 plugin_data { 1
// plugin_name, 2 content } }.
std::string plugin_summary(std::string_view tag, std::string_view plugin, std::string_view content,
                           std::string_view tensor) {
  std::string data, metadata, value, summary;
  append_message(data, 1, plugin);
  if (!content.empty()) append_message(data, 2, content);
  append_message(metadata, 1, data);
  append_message(value, 1, tag);
  if (!tensor.empty()) append_message(value, 8, tensor);
  append_message(value, 9, metadata);
  append_message(summary, 1, value);
  return summary;
}

// google.protobuf.Value: 2 double number_value, 3 string string_value, 4 bool bool_value.
std::string value_message(const TensorBoardWriter::Hyperparameter& value) {
  std::string out;
  if (const auto* number = std::get_if<double>(&value)) {
    out.push_back(2 << 3 | 1);
    append_number(out, *number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    append_message(out, 3, *text);
  } else {
    out.push_back(4 << 3 | 0);
    append_varint(out, std::get<bool>(value) ? 1 : 0);
  }
  return out;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(b)) & 0xffu];
  }
  return ~crc;
}

void TensorBoardWriter::add_text(std::int64_t step, std::string_view tag,
                                 std::string_view markdown) {
  // TensorProto: 1 dtype DT_STRING (7), 2 tensor_shape { 2 dim { 1 size 1 } }, 8 string_val.
  std::string tensor("\x08\x07\x12\x04\x12\x02\x08\x01", 8);
  append_message(tensor, 8, markdown);
  std::string data = event(step);
  append_message(data, 5, plugin_summary(tag, "text", "", tensor));
  file_.append(record(data));
}

void TensorBoardWriter::add_hyperparameters(const std::map<std::string, Hyperparameter>& values,
                                            std::span<const std::string> metrics) {
  // Experiment: 4 HParamInfo { 1 name, 4 type }, 5 MetricInfo { 1 MetricName { 2 tag } };
  // SessionStartInfo: 1 map of names to values { 1, 2 }.
  std::string experiment, session;
  for (const auto& [name, value] : values) {
    std::string info, entry;
    append_message(info, 1, name);
    info.push_back(4 << 3 | 0);  // 1 string, 2 bool, 3 float64
    append_varint(info, std::holds_alternative<double>(value)        ? 3
                        : std::holds_alternative<std::string>(value) ? 1
                                                                     : 2);
    append_message(experiment, 4, info);
    append_message(entry, 1, name);
    append_message(entry, 2, value_message(value));
    append_message(session, 1, entry);
  }
  for (const std::string& tag : metrics) {
    std::string name, info;
    append_message(name, 2, tag);
    append_message(info, 1, name);
    append_message(experiment, 5, info);
  }
  // HParamsPluginData: 2 experiment, 3 session_start_info.
  std::string records;
  const auto add = [&](std::string_view tag, int field, const std::string& message) {
    std::string content, data = event(0);
    append_message(content, field, message);
    append_message(data, 5, plugin_summary(tag, "hparams", content, ""));
    records += record(data);
  };
  add("_hparams_/experiment", 2, experiment);
  add("_hparams_/session_start_info", 3, session);
  file_.append(records);
}

TensorBoardWriter::TensorBoardWriter(const std::string& directory,
                                     std::optional<std::int64_t> resume_step)
    : file_(new_name(directory)) {
  std::string version = event(0);
  append_message(version, 3, "brain.Event:2");
  std::string records = record(version);
  if (resume_step) {
    // Field 7, SessionLog { 1 status: START (1) }: older events from this step on are dropped.
    std::string start = event(*resume_step);
    append_message(start, 7, std::string_view("\x08\x01", 2));
    records += record(start);
  }
  file_.append(records);
}

void TensorBoardWriter::add_scalars(std::int64_t step,
                                    std::span<const std::pair<std::string, double>> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    // Summary.Value: 1 tag, 2 float simple_value.
    std::string entry;
    append_message(entry, 1, tag);
    entry.push_back(2 << 3 | 5);
    append_number(entry, static_cast<float>(value));
    append_message(summary, 1, entry);
  }
  std::string data = event(step);
  append_message(data, 5, summary);
  file_.append(record(data));
}

}  // namespace trident
