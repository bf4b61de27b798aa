// Spheres that mirror each other above a plane.
#version 3.7;
global_settings { assumed_gamma 1 }
camera { location <0, 3, -8> look_at <0, 1, 0> }
light_source { <10, 20, -10> rgb 1 }
light_source { <-10, 5, -5> rgb 0.4 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#declare Place = seed(7);
#for (Number, 1, 60)
  sphere {
    <6 * rand(Place) - 3, 0.3 + 3 * rand(Place), 5 * rand(Place) - 2>, 0.3
    pigment { rgb <rand(Place), rand(Place), rand(Place)> }
    finish { reflection 0.4 specular 0.6 }
  }
#end
