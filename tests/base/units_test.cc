#include "base/units.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

TEST(Units, BytesAreCountedIn1024s) {
  EXPECT_EQ(bytes_text(0.0), "0 B");
  EXPECT_EQ(bytes_text(std::int64_t{512}), "512 B");
  EXPECT_EQ(bytes_text(std::int64_t{737'280}), "720.00 KiB");
  EXPECT_EQ(bytes_text(0x1p20 - 1), "1.00 MiB");
  EXPECT_EQ(bytes_text(1.25 * 0x1p30), "1.25 GiB");
  EXPECT_EQ(bytes_text(3000 * 0x1p40), "3000.00 TiB");
  EXPECT_STREQ(byte_unit(9.9 * 0x1p30).name, "MiB");
  EXPECT_STREQ(byte_unit(10 * 0x1p30).name, "GiB");
  EXPECT_EQ(byte_unit(0).of(std::int64_t{3} << 20), 3);
}

TEST(Units, TimesHaveTheirUnitAndNoResidue) {
  EXPECT_EQ(seconds_text(3.553e-15), "0 s");
  EXPECT_EQ(seconds_text(-3.553e-15), "0 s");
  EXPECT_EQ(seconds_text(12e-6), "12.00 µs");
  EXPECT_EQ(seconds_text(0.0012344), "1.234 ms");
  EXPECT_EQ(seconds_text(0.99999), "1.000 s");
  EXPECT_EQ(seconds_text(83.5), "83.50 s");
  EXPECT_EQ(seconds_text(123456.0), "123456 s");
}

TEST(Units, PercentsHaveNoNegativeZero) {
  EXPECT_EQ(percent_text(-1e-9), "0.0%");
  EXPECT_EQ(percent_text(-0.01), "-1.0%");
  EXPECT_EQ(percent_text(0.12345, 2), "12.35%");
}

TEST(Units, OneIsOneOfThem) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(3, "batch"), "3 batches");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
}

}  // namespace
}  // namespace trident
