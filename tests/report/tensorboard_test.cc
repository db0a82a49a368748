#include "report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files/bytes.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using testing::slurp;
using testing::TempDir;

TEST(TensorBoard, Crc32cMatchesThePublishedValues) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(as_bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(as_bytes_of(std::string(32, '\0'))), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(as_bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);  // RFC 3720, B.4
}

// The records of a file; both checksums of each are verified.
std::vector<std::string> records(const std::string& contents) {
  const auto masked = [](std::span<const std::byte> bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<std::string> all;
  ByteReader reader(as_bytes_of(contents), "events");
  while (reader.remaining() > 0) {
    const auto head = reader.take(8, "length");
    EXPECT_EQ(reader.read<std::uint32_t>("crc"), masked(head));
    const auto data = reader.take(load_little_endian<std::uint64_t>(head.data()), "data");
    EXPECT_EQ(reader.read<std::uint32_t>("crc"), masked(data));
    all.emplace_back(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return all;
}

TEST(TensorBoard, RecordsHoldVersionThenScalarsByteByByte) {
  const TempDir dir;
  TensorBoardWriter writer(dir.path());
  const std::vector<std::pair<std::string, double>> scalars = {{"loss", 1.5}, {"lr", 0.1}};
  writer.add_scalars(300, scalars);
  EXPECT_THAT(writer.path(), HasSubstr("events.out.tfevents."));
  const auto all = records(slurp(writer.path()));
  ASSERT_EQ(all.size(), 2u);
  // After nine bytes of wall time come step 0 and field 3.
  EXPECT_EQ(all[0].substr(9), std::string("\x10\0\x1a\x0d", 4) + "brain.Event:2");
  // Step 300 is the varint AC 02; field 5 holds two values: tag and little-endian fp32.
  EXPECT_EQ(all[1].substr(9), std::string("\x10\xac\x02\x2a\x18", 5) +
                                  std::string("\x0a\x0b\x0a\x04loss\x15\0\0\xc0\x3f", 13) +
                                  std::string("\x0a\x09\x0a\x02lr\x15\xcd\xcc\xcc\x3d", 11));
}

TEST(TensorBoard, ASecondWriterNeverTouchesTheFirstFileAndAResumeIsMarked) {
  const TempDir dir;
  TensorBoardWriter first(dir.path());
  const std::string before = slurp(first.path());
  TensorBoardWriter second(dir.path(), 7);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(slurp(first.path()), before);
  const auto all = records(slurp(second.path()));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].substr(9), "\x10\x07\x3a\x02\x08\x01");
  EXPECT_THROW(TensorBoardWriter(dir / "none"), Error);
}

}  // namespace
}  // namespace trident
