package secret

// Cheap has the keys of files that are made anew cost little.
func Cheap(e *Encrypted) *Encrypted {
	e.cost = cost{Passes: 1, Memory: 64, Lanes: 1}
	return e
}

// KeyringPatience is how long a keyring may take.
const KeyringPatience = keyringPatience
