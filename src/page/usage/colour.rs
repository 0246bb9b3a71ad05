//! The colours of the heat map: two straight lines through OKLab, one for light and one for dark paper.
//!
//! On a straight line through a perceptually uniform space, equal steps of the value look like equal steps of colour. Both
//! lines lie in the plane of blue and yellow and rise in lightness all the way, which leaves them readable for people who
//! do not tell red from green, and in print without colour. The coefficients of OKLab are those that Björn Ottosson
//! published in "A perceptual color space for image processing" (2020), <https://bottosson.github.io/posts/oklab/>.

/// A colour in OKLab: lightness, green to red, blue to yellow.
type OkLab = [f64; 3];

/// From the colour of light paper to a deep blue.
const ON_LIGHT: [OkLab; 2] = [[0.965, -0.004, 0.028], [0.29, -0.018, -0.115]];

/// From that of dark paper to a light yellow.
const ON_DARK: [OkLab; 2] = [[0.255, -0.008, -0.034], [0.93, -0.012, 0.118]];

/// Colours of a map.
const STEPS: usize = 64;

/// The colours on light and on dark paper, `#rrggbb`, from none to most.
pub(super) fn maps() -> [Vec<String>; 2] {
    [ON_LIGHT, ON_DARK].map(|ends| (0..STEPS).map(|step| hex(srgb(at(ends, step)))).collect())
}

fn at([from, to]: [OkLab; 2], step: usize) -> OkLab {
    let t = step as f64 / (STEPS - 1) as f64;
    [0, 1, 2].map(|axis| from[axis] + t * (to[axis] - from[axis]))
}

/// The colour on a screen, each channel from 0 to 1.
fn srgb([l, a, b]: OkLab) -> [f64; 3] {
    let cone = |l_a: f64, l_b: f64| (l + l_a * a + l_b * b).powi(3);
    let (l, m, s) = (
        cone(0.3963377774, 0.2158037573),
        cone(-0.1055613458, -0.0638541728),
        cone(-0.0894841775, -1.2914855480),
    );
    let linear = [
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    ];
    linear.map(|value| {
        let value = value.clamp(0.0, 1.0);
        if value <= 0.0031308 { 12.92 * value } else { 1.055 * value.powf(1.0 / 2.4) - 0.055 }
    })
}

fn hex(channels: [f64; 3]) -> String {
    let [r, g, b] = channels.map(|value| (value * 255.0).round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way back, by the same publication.
    fn oklab(hex: &str) -> OkLab {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        let (r, g, b) = (channel(1), channel(3), channel(5));
        let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).cbrt();
        let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).cbrt();
        let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).cbrt();
        [
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
        ]
    }

    fn distance(a: OkLab, b: OkLab) -> f64 {
        (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn colours_step_evenly_to_the_eye() {
        for map in maps() {
            let colours: Vec<OkLab> = map.iter().map(|hex| oklab(hex)).collect();
            let even = distance(colours[0], colours[STEPS - 1]) / (STEPS - 1) as f64;
            for pair in colours.windows(2) {
                let step = distance(pair[0], pair[1]);
                assert!((step - even).abs() < 0.45 * even, "a step of {step} among steps of {even}: {map:?}");
            }
        }
    }

    #[test]
    fn lightness_alone_tells_the_order() {
        for (map, rises) in maps().into_iter().zip([false, true]) {
            let lightness: Vec<f64> = map.iter().map(|hex| oklab(hex)[0]).collect();
            assert!(lightness.windows(2).all(|pair| (pair[0] < pair[1]) == rises && pair[0] != pair[1]));
            assert!((lightness[0] - lightness[STEPS - 1]).abs() > 0.6);
        }
    }

    #[test]
    fn no_colour_needs_red_against_green() {
        for map in maps() {
            assert!(map.iter().all(|hex| oklab(hex)[1].abs() < 0.03), "{map:?}");
        }
    }
}
