"""What every algorithm starts from: rows of the walks, constants of bodies and joints, kinematics, freedoms."""
