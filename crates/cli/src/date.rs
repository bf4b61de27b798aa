//! Calendar dates and minutes of measurements.

/// Gregorian date of a day since 1970. Years begin in March and end with the leap day (Hinnant,
/// "chrono-compatible low-level date algorithms").
pub fn day(days: u64) -> String {
    let days = days + 719_468; // since the 1st of March of the year 0
    // Days of 400 years, after which the calendar repeats.
    let era = days / 146_097;
    let of_era = days % 146_097;
    // Without the leap days of 4, 100 and 400 years, each year has 365 days.
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Any five months from March on, and from August on, have 153 days.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    // January and February end a year that began in March.
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", year + era * 400)
}

/// Seconds since 1970 as `2026-11-25 18:05 UTC`.
pub fn minute(unix_s: u64) -> String {
    let minutes = unix_s / 60 % (24 * 60);
    format!("{} {:02}:{:02} UTC", day(unix_s / 86_400), minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        let dates = [0, 58, 59, 364, 365, 11_016, 11_017, 20_778].map(day);
        let expected = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "1970-12-31",
            "1971-01-01",
            "2000-02-29",
            "2000-03-01",
            "2026-11-21",
        ];
        assert_eq!(dates, expected);
    }

    #[test]
    fn minutes() {
        assert_eq!(minute(0), "1970-01-01 00:00 UTC");
        assert_eq!(minute(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(minute(1_764_093_900), "2025-11-25 18:05 UTC");
    }
}
