set terminal svg size 800,600
set output "/dev/null"
set samples 1000
plot [0:50] sin(x) * exp(-x / 20), cos(3 * x) / (1 + x), besj0(x)
set isosamples 40
set hidden3d
splot [-3:3] [-3:3] sin(x * x + y * y) * exp(-(x * x + y * y) / 4)
set contour base
splot [-3:3] [-3:3] x * y * exp(-(x * x + y * y))
