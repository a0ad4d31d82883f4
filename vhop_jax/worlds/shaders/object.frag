// Paints an object: its parts, the pattern on its body, and the light on it.
layout(std140) uniform Thing {
  mat4 model;
  vec4 first;      // named colour, w: pattern
  vec4 second;     // second colour, w: height above which a two-tone has
                   // it, or below which if negative
  vec4 body_low;   // w: frequency of the pattern
  vec4 body_size;  // w: phase of the pattern
  vec4 print_frame;  // centre right and up, half width (0: none) and height
  vec4 print_side;   // cos and sin of its turn, how far out it lies
};
in vec3 world;
in vec3 normal;
in vec3 local;
in vec3 local_normal;
flat in float part;
out vec4 pixel;
uniform sampler2D print;
#ifdef SKIN
in vec3 uv;  // z: number of the texture, or -1
flat in vec3 base;
uniform sampler2DArray skin;  // Square roots of linear values.

const float OWN_PART = 5.5;
#endif

// 1 where |x| < half_width, with an edge as soft as a pixel.
float band(float x, float half_width, float pixel_width) {
  return clamp((half_width - abs(x)) / max(pixel_width, 1e-4) + 0.5, 0.0, 1.0);
}

// Share of the second colour at this point of the body.
float compute_pattern() {
  float extent = max(body_size.x, max(body_size.y, body_size.z));
  vec3 point = local - body_low.xyz - 0.5 * body_size.xyz;
  float phase = body_size.w;
  if (first.w == 1.0) {
    float y = sign(second.w) * (local.y - abs(second.w));
    return clamp(0.5 + y / max(fwidth(local.y), 1e-4), 0.0, 1.0);
  }
  if (first.w == 2.0) {
    // Slanted, so that no side of a box and no table top is left without.
    float count = mix(3.2, 4.8, body_low.w);
    vec3 lean = 0.25 + 0.75 * step(extent - 1e-4, body_size.xyz);
    float t = dot(point / body_size.xyz, lean) * count + phase;
    return band(fract(t) - 0.5, 0.17, fwidth(t));
  }
  // Checks and dots are laid on from the side that the surface faces most.
  vec3 facing = abs(local_normal);
  vec2 uv = facing.y > max(facing.x, facing.z) ? point.xz
            : facing.x > facing.z ? point.zy : point.xy;
  uv /= extent;
  vec2 smooth_width = fwidth(local.xy) + fwidth(local.z);
  float width = max(smooth_width.x, smooth_width.y) / extent;
  float count = first.w == 3.0 ? mix(2.2, 3.2, body_low.w)
                               : mix(2.6, 3.8, body_low.w);
  uv = uv * count + phase;
  width *= count;
  vec2 a = fract(uv) - 0.5;
  vec2 b = fract(uv + 0.5) - 0.5;
  if (first.w == 3.0)
    return band(a.x, 0.21, width) * band(a.y, 0.21, width)
           + band(b.x, 0.21, width) * band(b.y, 0.21, width);
  if (first.w == 4.0)
    return band(length(a), 0.2, width) + band(length(b), 0.2, width);
  return 0.0;
}

const vec3 LABEL = vec3(0.86), INK = vec3(0.012);
// Added to the mipmap level: a label seen from the side would be all grey.
const float SHARPER = -0.5;

// Lays the label over the body's paint, on the side that has it.
vec3 add_print(vec3 paint) {
  vec2 side = print_side.xy;
  vec2 place = vec2(dot(local.xz, side * vec2(1.0, -1.0)), local.y);
  vec2 uv = (place - print_frame.xy) / print_frame.zw;
  // Read before any pixel leaves: derivatives mean nothing among pixels that
  // took different ways.
  float ink = texture(print, 0.5 + 0.5 * uv, SHARPER).r;
  vec2 inside = clamp((1.0 - abs(uv)) / max(fwidth(uv), 1e-4) + 0.5, 0.0, 1.0);
  if (dot(local_normal.xz, side.yx) < 0.3 * length(local_normal)) return paint;
  if (dot(local.xz, side.yx) < print_side.z) return paint;
  return mix(paint, mix(LABEL, INK, ink), inside.x * inside.y);
}

void main() {
  vec3 to_eye = normalize(eye.xyz - world);
  vec3 n = normalize(normal);
  if (dot(n, to_eye) < 0.0) n = -n;
  vec3 to_light = light_direction.xyz;
  float ambient = eye.w;

  vec3 albedo = second.rgb;
  float gloss = 0.12;
  float mirror = 0.0;
  if (part < 0.5) {
    albedo = mix(first.rgb, second.rgb, compute_pattern());
  } else if (part > 4.5) {
    albedo = vec3(0.45, 0.46, 0.48);
    gloss = 0.7;
    mirror = 0.45;
  } else if (part > 3.5) {
    float grain = fract(8.0 * local.x + abs(2.0 * local.y + local.z - 1.0));
    albedo = vec3(0.35, 0.19, 0.085) * (0.86 + 0.56 * abs(grain - 0.5));
    gloss = 0.05;
  } else if (part > 2.5) {
    albedo = vec3(0.72, 0.71, 0.68);
  } else if (part > 1.5) {
    albedo = vec3(0.03, 0.03, 0.034);
    gloss = 0.2;
  }

#ifdef SKIN
  vec4 texel = texture(skin, vec3(uv.xy, max(round(uv.z), 0.0)));
  if (uv.z < -0.5) texel = vec4(1.0);
  if (texel.a < 0.5) discard;
  if (part > OWN_PART) {
    albedo = vec3(1.0);
    gloss = 0.12;
    mirror = 0.0;
  }
  albedo *= base * texel.rgb * texel.rgb;
#endif
  if (print_frame.z > 0.0 && part < 0.5) albedo = add_print(albedo);

  float facing = max(dot(n, to_light), 0.0);
  // A wide blur or a slanted surface would shade itself: keep off it.
  float lit = compute_lit(world + 0.04 * n + 0.01 * to_light, 1.2);
  lit *= smoothstep(0.02, 0.3, facing);
  // Light from all around: from above more than from below, and some from
  // the viewer's side, so that no visible face is without form.
  float around = 0.72 + 0.28 * n.y;
  float front = 0.25 * max(dot(n, to_eye), 0.0);
  float ground = 0.6 + 0.4 * clamp(3.0 * world.y, 0.0, 1.0);
  vec3 light = ambient * (around * ground + front)
               + (1.1 - ambient) * light_colour.rgb * facing * lit;
  vec3 colour = albedo * light;

  vec3 half_way = normalize(to_light + to_eye);
  float highlight = max(dot(n, half_way), 0.0);
  for (int i = 0; i < 5; ++i) highlight *= highlight;
  float rim = 1.0 - max(dot(n, to_eye), 0.0);
  rim *= rim;
  rim *= rim;
  vec3 bounced = reflect(-to_eye, n);
  float sky = smoothstep(-0.2, 0.6, bounced.y);
  colour += light_colour.rgb * gloss * highlight * lit;
  colour += (0.05 + mirror) * mix(0.08, 0.75, sky) * (mirror > 0.0 ? 1.0 : rim);
  colour += 0.012;

  pixel = vec4(encode(colour), 1.0);
}
