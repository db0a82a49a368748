#include "base/files/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(Bytes, AreLittleEndianAndReadBackAtOddOffsets) {
  std::array<std::byte, 32> buffer{};
  ByteWriter writer(buffer, "f");
  writer.write<std::uint8_t>(7);
  writer.write<std::uint32_t>(0x04030201);
  writer.write<std::int64_t>(-2);
  writer.write<double>(0.1);
  writer.write<std::uint8_t>('x');
  writer.write<std::uint8_t>('y');
  EXPECT_EQ(buffer[1], std::byte{1});
  EXPECT_EQ(buffer[4], std::byte{4});
  EXPECT_EQ(buffer[5], std::byte{0xfe});

  ByteReader reader(writer.written(), "f");
  EXPECT_EQ(reader.read<std::uint8_t>("a"), 7);
  EXPECT_EQ(reader.read<std::uint32_t>("b"), 0x04030201u);
  EXPECT_EQ(reader.read<std::int64_t>("c"), -2);
  EXPECT_EQ(reader.read<double>("d"), 0.1);
  EXPECT_EQ(reader.take(2, "e")[1], std::byte{'y'});
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(Bytes, ReadingPastTheEndNamesFileOffsetNeedAndRest) {
  std::array<std::byte, 6> buffer{};
  ByteReader reader(buffer, "x.idx", 100);
  reader.read<std::uint32_t>("the version");
  const auto message = message_of<RequestError>([&] { reader.read<std::uint64_t>("the count"); });
  EXPECT_THAT(message, HasSubstr("x.idx"));
  EXPECT_THAT(message, HasSubstr("the count at offset 104 needs 8 bytes, the file has 2 left"));
  EXPECT_EQ(reader.remaining(), 2u);
  EXPECT_THROW(reader.take(~std::uint64_t{0}, "all"), RequestError);
}

TEST(Bytes, WritingPastTheEndIsAnErrorAndWritesNothing) {
  std::array<std::byte, 3> buffer{};
  ByteWriter writer(buffer, "f");
  EXPECT_THROW(writer.write<std::uint32_t>(~0u), Error);
  EXPECT_EQ(writer.position(), 0u);
  EXPECT_EQ(buffer[0], std::byte{0});
}

}  // namespace
}  // namespace trident
